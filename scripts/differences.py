"""What a release changes, in lines of Markdown for the person who takes it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from registry import Archive

if TYPE_CHECKING:
    from known_packages import Package

_MOST_FILES = 25


def changes(before: Any, after: Any, constant: tuple[str, ...] = (), where: str = "") -> Iterator[str]:
    """Yield a line for every fact that came, went or changed."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            if where or name not in constant:
                yield from changes(before.get(name), after.get(name), (), f"{where}.{name}" if where else name)
    elif before is None:
        yield f"- new: `{where}`{_default(after)}"
    elif after is None:
        yield f"- gone: `{where}`"
    elif before != after:
        yield _changed(before, after, where)


def _changed(before: Any, after: Any, where: str) -> str:
    if _is_key(before) and _is_key(after) and before[0] == after[0]:
        return f"- default of `{where}`: {_shown(before)} before, {_shown(after)} now"
    return f"- `{where}`: `{before}` before, `{after}` now"


def _is_key(fact: Any) -> bool:
    return isinstance(fact, list) and len(fact) in (1, 2) and isinstance(fact[0], str)


def _default(fact: Any) -> str:
    return f", {fact[0]}, default {_shown(fact)}" if _is_key(fact) else ""


def _shown(fact: list[Any]) -> str:
    return f"`{fact[1]}`" if len(fact) > 1 else "`null`"


def without_meaning(before: Mapping[str, Any], after: Mapping[str, Any], package: Package) -> Iterator[str]:
    """Yield which new keys nobody said anything about: whether they change memory is for a person to say."""
    skipped = {*package.constant, "constructors", "commands", "launch"}
    keys, older = ({*_keys(facts, skipped)} for facts in (after, before))
    if new := sorted(keys - older - package.meanings.keys()):
        yield f"\nWithout a meaning for memory ({package.folder} meanings): {', '.join(f'`{key}`' for key in new)}"


def _keys(facts: Mapping[str, Any], skipped: set[str]) -> Iterator[str]:
    for name, held in facts.items():
        if name not in skipped and isinstance(held, Mapping):
            yield from held


def unread(package: Package, archive: Archive, before: Archive | None) -> Iterator[str]:
    """Yield the files that decide memory and differ from the release before: a person must read them."""
    if before is None:
        yield "\nThe release before is not at hand: read the code by yourself."
        return
    names = [name for name in archive.names if name.startswith(package.decides) and name.endswith(".py")]
    counted = {name: _lines(before.text(name) or "", archive.text(name) or "") for name in names}
    changed = sorted((name for name in counted if counted[name]), key=lambda name: -counted[name])
    if not changed:
        yield "\nNo file that decides memory differs: nothing to read."
        return
    yield "\nTo read, with the number of lines that differ:"
    yield from (f"- {name}: {counted[name]}" for name in changed[:_MOST_FILES])
    if len(changed) > _MOST_FILES:
        yield f"- and {len(changed) - _MOST_FILES} more"
    yield ""


def _lines(before: str, after: str) -> int:
    if before == after:
        return 0
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in found)
