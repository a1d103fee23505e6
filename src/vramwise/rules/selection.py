"""Which rules run: --select, --ignore and the project's lists, by id; an unknown id is an error with a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vramwise.errors import VramwiseError
from vramwise.rules.base import Rule


def select_rules(rules: Sequence[Rule], *, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> list[Rule]:
    """The rules that are selected (all, where none is named) and not ignored. Ids may be comma-separated."""
    known = {rule.id for rule in rules}
    wanted = _ids(select, known)
    unwanted = _ids(ignore, known)
    return [rule for rule in rules if (not wanted or rule.id in wanted) and rule.id not in unwanted]


def find_rule(rules: Sequence[Rule], rule_id: str) -> Rule:
    """One rule by id. Raises a VramwiseError where there is none, or where several are named."""
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
