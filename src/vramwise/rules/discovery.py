"""Which rules exist, and which run.

Rules are discovered: every rule in every module below a package, one folder per topic. `--select`, `--ignore` and the
project's lists choose among them by id; an unknown id is an error with a suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from vramwise.errors import VramwiseError
from vramwise.rules.base import TOPICS, Rule

# The rules that apply to every trainer.
COMMON = "vramwise.rules"


@cache
def rules_below(package: str) -> tuple[Rule, ...]:
    """Return the rules of a package such as `vramwise.rules`, topic by topic, within each by id.

    Those of a trainer are marked: they say what its releases do.
    """
    found = [rule for topic in _topics(package) for rule in _rules(f"{package}.{topic}")]
    return tuple(found) if package == COMMON else tuple(replace(rule, of_release=True) for rule in found)


def _topics(package: str) -> list[str]:
    present = {found.name for found in iter_modules(import_module(package).__path__)}
    return [topic for topic in TOPICS if topic in present]


def _rules(folder: str) -> list[Rule]:
    """Return the rules of a folder. A module holds one rule, several as rows, or none if it has only helpers."""
    modules = [import_module(f"{folder}.{found.name}") for found in iter_modules(import_module(folder).__path__)]
    rules = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    return sorted(rules, key=lambda rule: rule.id)


def common_rules() -> tuple[Rule, ...]:
    """Return the rules that apply to every trainer."""
    return rules_below(COMMON)


def select_rules(rules: Sequence[Rule], *, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> list[Rule]:
    """Return the selected rules (all, if none is named) that are not ignored. Ids may be comma-separated.

    Raises VramwiseError for an unknown id.
    """
    known = {rule.id for rule in rules}
    wanted = _ids(select, known)
    unwanted = _ids(ignore, known)
    return [rule for rule in rules if (not wanted or rule.id in wanted) and rule.id not in unwanted]


def find_rule(rules: Sequence[Rule], rule_id: str) -> Rule:
    """Return one rule by id. Raises VramwiseError if there is none, or if several are named."""
    found = _ids([rule_id], {rule.id for rule in rules})
    if len(found) != 1:
        raise VramwiseError(f"'{rule_id}' is not a rule: `vramwise rules` lists them")
    return next(rule for rule in rules if rule.id in found)


def _ids(names: Iterable[str], known: set[str]) -> set[str]:
    ids = {part.strip() for name in names for part in name.split(",") if part.strip()}
    for unknown in sorted(ids - known):
        from difflib import get_close_matches

        close = get_close_matches(unknown, sorted(known), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`vramwise rules` lists them"
        raise VramwiseError(f"no such rule '{unknown}': {hint}")
    return ids
