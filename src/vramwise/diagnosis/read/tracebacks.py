"""Find the call that a traceback line names, as CPython, rich and IPython print it. Knows no libraries.

CPython puts the source line below the call; rich and IPython show several and point at the one that ran. rich wraps
long paths: the call may continue on the next line of its box.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.evidence import Frame
from vramwise.diagnosis.read.prefixes import split_rank, unboxed

# Words that such lines contain, for a fast search.
CALL_WORDS = (b"File ", b"Traceback (most", b".py in ", "│ ".encode())

_CPYTHON = re.compile(r'^\W{0,12}File "([^"\n]{1,400})", line \d{1,7}, in ([\w<>.]{1,120})')
_PATH = r"(?:[A-Za-z]:)?[^\s:]{1,300}\.py"
_RICH = re.compile(rf"^({_PATH}):\d{{1,7}} in ([\w<>]{{1,120}})")
_IPYTHON = re.compile(rf"^(?:File )?({_PATH})(?::\d{{1,7}},)? in (?:\w{{1,120}}\.){{0,4}}([\w<>]{{1,120}})\(")
# `❱ 12 │ code` (`>` on Windows) and `---> 12 code`: the line that ran.
_POINTED_AT = re.compile(r"^\W{0,4}(?:❱|>|-{1,6}>)\s{0,6}\d{1,7}\s([│|\s]{0,80}\S.{0,300})", re.MULTILINE)
_LONGEST_CODE = 300
# The most text to search for the line that ran.
_LONGEST_EXCERPT = 4000


def may_name_call(text: str) -> bool:
    """Whether a line may name a call: a fast check without false negatives."""
    return 'File "' in text or ".py" in text or "│" in text


def call_on(text: str, following: str) -> Frame | None:
    """Return the call that a traceback line names, or None; `following` is the text after it."""
    match = _CPYTHON.match(text)
    if match:
        code = _next_line(following)
        return Frame(match[1], match[2], "" if code.startswith('File "') else code[:_LONGEST_CODE])
    line = unboxed(text)
    match = _RICH.match(line) or _IPYTHON.match(line) or (_folded(line, following) if "│" in text else None)
    return Frame(match[1], match[2], _pointed_at(following)) if match else None


def _folded(line: str, following: str) -> re.Match[str] | None:
    """Match a call that rich's box wrapped, within the path or before the function."""
    if not re.match(r"(?:[A-Za-z]:\\|/)\S+$", line):
        return None
    rest = _next_line(following)
    return _RICH.match(line + rest) or _RICH.match(f"{line} {rest}")


def _next_line(following: str) -> str:
    return unboxed(split_rank(following.lstrip("\r\n").split("\n", 1)[0])[1]).strip()


def _pointed_at(following: str) -> str:
    match = _POINTED_AT.search(following[:_LONGEST_EXCERPT])
    return match[1].strip("│| \t")[:_LONGEST_CODE] if match else ""
