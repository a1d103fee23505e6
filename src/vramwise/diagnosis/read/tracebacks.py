"""Find the calls that a traceback line names, as CPython, rich and IPython print it, or a person lists them.

Knows no libraries. CPython puts the source line below the call; rich and IPython show several and point at the one that
ran. rich wraps long paths: the call may continue on the next line of its box. A list of calls has arrows between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.diagnosis.evidence import Frame
from vramwise.diagnosis.read.prefixes import split_rank, unboxed, unlogged

# Words that such lines contain, for a fast search.
CALL_WORDS = (b"File ", b"Traceback (most", b".py", b", in ", b" -> ", b"ray::", "│ ".encode(), "→".encode())

_CPYTHON = re.compile(r'^[^"]{0,160}?File "([^"\n]{1,400})", line \d{1,7},? in ([\w<>.]{1,120})')
# A method of a Ray actor, as Ray names it above the traceback of the actor.
_RAY = re.compile(r"\bray::(?:\w{1,60}\.)?(\w{1,80})\(\)")
# Its end, where the head of the line was cut off.
_BEHEADED = re.compile(r'^(?:[^\s"]{0,200}",? ?)?line \d{1,7}, in ([\w<>.]{1,120})\s*$')
_PATH = r"(?:[A-Za-z]:)?[^\s:()\[\]]{1,300}\.py"
_RICH = re.compile(rf"^({_PATH}):\d{{1,7}}:?(?: in)? ([A-Za-z_<][\w<>]{{0,120}})(?:\(\))?\s*$")
_IPYTHON = re.compile(
    rf"^(?:File )?\[?(?:({_PATH})|<ipython[^>\s]{{1,80}}>)(?:\]\([^()\s]{{1,400}}\))?(?::\d{{1,7}},?|,)? in "
    r"(?:[\w<>]{1,120}\.){0,4}([\w<>]{1,120}) ?\("
)
# `❱ 12 │ code` (`>` on Windows) and `---> 12 code`: the line that ran.
_POINTED_AT = re.compile(r"^\W{0,4}(?:❱|>|-{1,6}>)\s{0,6}\[?\d{1,7}[\]\s]([│|\s]{0,80}\S.{0,300})", re.MULTILINE)
_ARROW = re.compile(r"\s{0,4}(?:->|=>|→|⇒|➜|↳)\s{0,4}")
_STEP = re.compile(
    rf"^[\s\d.)*\-]{{0,8}}(?:(?P<file>{_PATH})(?::\d{{1,7}})?(?:[:,]|\s|$)\s?)?(?:in )?"
    r"(?P<name>(?:[A-Za-z_][\w<>]{0,80}\.){0,5}[A-Za-z_<][\w<>]{0,80})?(?P<call>\(.{0,80}\))?[\s\W]{0,12}$"
)
_CODE = re.compile(r"\w\(|\s=\s|^return\s")
# What a person adds to the last call of a list.
_REMARK = re.compile(r":\s|\s[(←<\-]|\s{2,8}#")
_LONGEST_CODE = 300
# The most text to search for the line that ran.
_LONGEST_EXCERPT = 4000
_MOST_STEPS = 40


def may_name_call(text: str) -> bool:
    """Whether a line may name a call: a fast check without false negatives."""
    return (
        "File " in text
        or ".py" in text
        or "│" in text
        or ", in " in text
        or "->" in text
        or "→" in text
        or "ray::" in text
    )


def calls_on(text: str, following: str) -> list[Frame]:
    """Return the calls that a line names, outermost first; `following` is the text after it."""
    match = _CPYTHON.match(text)
    if match:
        code = _next_line(following)
        return [Frame(match[1], match[2], "" if 'File "' in code else code[:_LONGEST_CODE])]
    line = unboxed(text)
    if "ray::" in line and (match := _RAY.search(line)):
        return [Frame("", match[1], "")]
    if match := _BEHEADED.match(line):
        return [Frame("", match[1], _next_line(following)[:_LONGEST_CODE])]
    match = _RICH.match(line) or _IPYTHON.match(line) or (_folded(line, following) if "│" in text else None)
    if match:
        return [Frame(match[1] or "", match[2], _pointed_at(following))]
    return list(_listed(line)) if "->" in line or "→" in line else []


def code_above(text: str) -> tuple[Frame, ...]:
    """Return the lines of code right above a message as calls without names: the end of a traceback cut to its code."""
    lines = [unboxed(unlogged(split_rank(line)[1])).strip() for line in text[-_LONGEST_EXCERPT:].splitlines()[-6:]]
    return tuple(Frame("", "", line[:_LONGEST_CODE]) for line in lines if _CODE.search(line))


def _listed(line: str) -> Iterator[Frame]:
    """Yield the calls of a list with arrows, if all of its parts look like calls."""
    parts = _ARROW.split(line[:_LONGEST_EXCERPT])[:_MOST_STEPS]
    parts[-1] = _REMARK.split(parts[-1], maxsplit=1)[0]
    if len(parts) < 2 or re.match(r"\s*-+>\s*\d", line):
        return
    steps = [_STEP.match(part) for part in parts if part.strip()]
    likely = [step for step in steps if step and (step["file"] or step["call"] or "_" in (step["name"] or ""))]
    if None in steps or not likely:
        return
    for step in steps:
        if step and (step["name"] or step["file"]):
            name = (step["name"] or "").rpartition(".")[2]
            yield Frame(step["file"] or "", name, f"{name}()" if step["call"] else "")


def _folded(line: str, following: str) -> re.Match[str] | None:
    """Match a call that rich's box wrapped, within the path or before the function."""
    if not re.match(r"(?:[A-Za-z]:\\|/)\S+$", line):
        return None
    rest = _next_line(following)
    return _RICH.match(line + rest) or _RICH.match(f"{line} {rest}")


def _next_line(following: str) -> str:
    return unboxed(unlogged(split_rank(following.lstrip("\r\n").split("\n", 1)[0])[1])).strip()


def _pointed_at(following: str) -> str:
    match = _POINTED_AT.search(following[:_LONGEST_EXCERPT])
    return match[1].strip("│| \t")[:_LONGEST_CODE] if match else ""
