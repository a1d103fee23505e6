"""Which rules exist, and which run.

Rules are discovered: every rule in a module of `rules/` that is named after a topic, or after a topic and a subject
(`config_keys`). A trainer with few rules has them in one module, `rules.py`. `--select`, `--ignore` and the project's
lists choose among them by id; an unknown id is an error with a suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from vramwise.errors import VramwiseError
from vramwise.rules.base import TOPICS, Rule, by_topic

# The rules that apply to every trainer.
COMMON = "vramwise.rules"


@cache
def rules_below(name: str) -> tuple[Rule, ...]:
    """Return the rules of a package such as `vramwise.rules`, or of a module, topic by topic, within each by id.

    Those of a trainer are marked: they say what its releases do.
    """
    listed = by_topic(sorted((rule for module in _modules(name) for rule in _rules(module)), key=lambda rule: rule.id))
    return tuple(listed) if name == COMMON else tuple(replace(rule, of_release=True) for rule in listed)


def _rules(module: ModuleType) -> Iterator[Rule]:
    """Yield the rules of a module. Those that name no topic have the module's."""
    topic = _topic(module.__name__.rpartition(".")[2])
    for value in vars(module).values():
        if isinstance(value, Rule):
            yield value if value.topic else replace(value, topic=topic)


def _modules(name: str) -> list[ModuleType]:
    """Return the modules of a package that are named after a topic; a module itself."""
    found = import_module(name)
    if not hasattr(found, "__path__"):
        return [found]
    names = [inside.name for inside in iter_modules(found.__path__) if _topic(inside.name) in TOPICS]
    return [import_module(f"{name}.{inside}") for inside in names]


def _topic(name: str) -> str:
    return name.partition("_")[0]


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
