r"""What leaves the program, line by line: nothing that came from outside can act on who reads it.

Renderers hand over lines and never end one themselves, so a line end inside a value cannot start a line: like every
other character that would act instead of being seen, it is shown as an escape (`\n`, `\x1b`, `\u202e`). Colours are
ours alone: `style` writes them behind a mark that no input can know, and only what carries it becomes a colour.
"""

from __future__ import annotations

import os
import re

import click

# Controls (C0, DEL, C1), line and paragraph separators, what turns or hides text (bidirectional and invisible marks,
# tags), and lone surrogates, which no encoding can write. Joiners stay: scripts and emoji need them.
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Drawn anew for each process: who wrote an input cannot have known it.
_MARK = f"\x1b{os.urandom(8).hex()}"
_CODE = re.compile(rf"{_MARK}(\[[0-9;]*m)")
# What a CI service takes for a command in a log: `::name::` where a line starts (GitHub), and anywhere in it
# `##[name]` (GitHub's older form), `##vso[` (Azure) and `##teamcity[`.
_COMMAND = re.compile(rf"^((?:\s|{_MARK}\[[0-9;]*m)*):(?=:)")
_COMMAND_WITHIN = re.compile(r"#(?=\w*\[)(?<=##)")


def visible(text: str) -> str:
    """The text on one line, every acting character as an escape; the bytes of a name that is not UTF-8 as `\\xff`."""
    return _ACTING.sub(_escape, text)


def style(text: str, **how: str | bool | None) -> str:
    """The text in a colour, bold or dim (click's words), where it is written to a terminal."""
    codes = click.style("", **how).replace("\x1b", _MARK)  # type: ignore[arg-type]
    opening, _, closing = codes.rpartition(_MARK)
    return f"{opening}{text}{_MARK}{closing}"


def unstyle(text: str) -> str:
    """The text without our colours, to know its width."""
    return _CODE.sub("", text)


def outward(line: str, *, commands: bool = False) -> str:
    """A line as it may leave, without its end. `commands`: it is one for the CI service, by our own will."""
    if not commands:
        line = _COMMAND.sub(r"\1\\x3a", _COMMAND_WITHIN.sub(r"\\x23", line))
    parts = _CODE.split(line)
    parts[::2] = map(visible, parts[::2])
    parts[1::2] = (f"\x1b{code}" for code in parts[1::2])
    return "".join(parts)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that was not UTF-8, as Python keeps it in names
        number -= 0xDC00
    if number > 0xFF:
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    return _SHORT.get(character, f"\\x{number:02x}")
