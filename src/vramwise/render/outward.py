r"""Neutralises output line by line: text from outside cannot act on a terminal, a log or a CI service.

Renderers return lines and never end one themselves, so a line break inside a value cannot start a new line. Like every
other acting character, it is shown as an escape (`\n`, `\x1b`, `\u202e`). Colours are ours alone: `style` marks them
with a secret that no input can know, and only marked codes become colours.
"""

from __future__ import annotations

import os
import re

import click

# Controls (C0, DEL, C1), line and paragraph separators, characters that reorder or hide text (bidirectional and
# invisible marks, tags), and lone surrogates, which cannot be encoded. Joiners stay: scripts and emoji need them.
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Random for each process, so no input can contain it.
_MARK = f"\x1b{os.urandom(8).hex()}"
_CODE = re.compile(rf"{_MARK}(\[[0-9;]*m)")
# What CI services treat as a command in a log: `::name::` where a line starts (GitHub), and anywhere in it `##[name]`
# (GitHub's older form), `##vso[` (Azure) and `##teamcity[`.
_COMMAND = re.compile(rf"^((?:\s|{_MARK}\[[0-9;]*m)*):(?=:)")
_COMMAND_WITHIN = re.compile(r"#(?=\w*\[)(?<=##)")


def visible(text: str) -> str:
    r"""Return the text on one line with every acting character escaped; bytes that are not UTF-8 become `\xff`."""
    return _ACTING.sub(_escape, text)


def style(text: str, **how: str | bool | None) -> str:
    """Return the text in a colour, bold or dim (click's arguments), if it is written to a terminal."""
    codes = click.style("", **how).replace("\x1b", _MARK)  # type: ignore[arg-type]
    opening, _, closing = codes.rpartition(_MARK)
    return f"{opening}{text}{_MARK}{closing}"


def unstyle(text: str) -> str:
    """Return the text without our colours, to know its width."""
    return _CODE.sub("", text)


def outward(line: str, *, commands: bool = False) -> str:
    """Return a line safe for output, without its end. `commands`: the line is one of our own CI commands."""
    if not commands:
        line = _COMMAND.sub(r"\1\\x3a", _COMMAND_WITHIN.sub(r"\\x23", line))
    parts = _CODE.split(line)
    parts[::2] = map(visible, parts[::2])
    parts[1::2] = (f"\x1b{code}" for code in parts[1::2])
    return "".join(parts)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that was not UTF-8, as Python represents it
        number -= 0xDC00
    if number > 0xFF:
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    return _SHORT.get(character, f"\\x{number:02x}")
