"""Writes the text of a new config: its keys in groups, with comments on the important lines.

Findings that the config settles are silenced by such comments, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import rules_for
from vramwise.types import Finding

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


def of_memory(trainer: Trainer, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that concern only memory: their cost is already in the prediction."""
    rules = {rule.id for rule in rules_for(trainer) if rule.costs_memory}
    return [one for one in findings if one.rule in rules]


def of_rounding(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings whose fix changes only rounding: the search could have chosen it."""
    changes = [(one, one.fix.change) for one in findings if one.fix is not None]
    return [one for one, change in changes if change is not None and change.effect == "rounding"]


def with_silenced(comments: Mapping[str, str], findings: Sequence[Finding], why: str) -> dict[str, str]:
    """Return the comments with findings silenced at their keys; the key "" is for the whole file."""
    found = dict(comments)
    for one in findings:
        key = one.key or ""
        silence = f"vramwise: ignore[{one.rule}] {why}"
        found[key] = f"{found[key]}  # {silence}" if found.get(key) else silence
    return found
