"""The text of a new config: its keys in groups, each line that matters with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

Groups = Sequence[Sequence[str]]


def config_text(values: Mapping[str, Any], groups: Groups, comments: Mapping[str, str], head: Sequence[str]) -> str:
    """YAML with blank lines between the groups and comments behind the values. Keys that hold None are left out.

    The comment of the key "" goes on the first line, before the others of the head.
    """
    written = {key: value for key, value in values.items() if value is not None}
    silenced = [comments[""]] if comments.get("") else []
    blocks = [[f"# {' '.join(line.splitlines())}".rstrip() for line in (*silenced, *head)]]
    blocks += [
        [line for key in group for line in _lines(key, written[key], comments.get(key, ""))]
        for group in grouped(list(written), groups)
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def grouped(keys: Sequence[str], groups: Groups) -> Iterator[list[str]]:
    """The keys in their groups; those that no group names go to the last but one: kernels and what saves memory."""
    known = {key for group in groups for key in group}
    others = [key for key in keys if key not in known]
    for place, group in enumerate(groups):
        found = [key for key in group if key in keys]
        if place == len(groups) - 2:
            found += others
        if found:
            yield found


def _lines(key: str, value: Any, comment: str) -> list[str]:
    text: str = yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    first, *rest = text.rstrip("\n").split("\n")
    return [f"{first}  # {comment}" if comment else first, *rest]


class _Dumper(yaml.SafeDumper):
    """Indents the items of a list, as people do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Never without an indent."""
        super().increase_indent(flow, False)
