"""Writes the text of a new config: its keys in groups, with comments on the important lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

Groups = Sequence[Sequence[str]]


def config_text(values: Mapping[str, Any], groups: Groups, comments: Mapping[str, str], head: Sequence[str]) -> str:
    """Return YAML with blank lines between groups and comments after values; keys whose value is None are omitted."""
    written = {key: value for key, value in values.items() if value is not None}
    blocks = [[f"# {' '.join(line.splitlines())}".rstrip() for line in head]]
    blocks += [
        [line for key in group for line in _lines(key, written[key], comments)]
        for group in grouped(list(written), groups)
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def grouped(keys: Sequence[str], groups: Groups) -> Iterator[list[str]]:
    """Yield the keys in their groups; keys without a group go to the last but one (kernels and memory savings)."""
    known = {key for group in groups for key in group}
    others = [key for key in keys if key not in known]
    for place, group in enumerate(groups):
        found = [key for key in group if key in keys]
        if place == len(groups) - 2:
            found += others
        if found:
            yield found


def _lines(key: str, value: Any, comments: Mapping[str, str]) -> list[str]:
    """Return the lines of a key with its value; keys of a section have their own comments."""
    text: str = yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    lines = text.rstrip("\n").split("\n")
    inner = value if isinstance(value, Mapping) else {}
    behind = {f"  {name}:": comments.get(f"{key}.{name}", "") for name in inner} | {f"{key}:": comments.get(key, "")}
    return [_behind(line, behind.get(line[: line.find(":") + 1], "")) for line in lines]


def _behind(line: str, comment: str) -> str:
    return f"{line}  # {comment}" if comment else line


class _Dumper(yaml.SafeDumper):
    """Indents list items."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Always indent lists."""
        super().increase_indent(flow, False)
