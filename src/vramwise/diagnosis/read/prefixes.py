"""What a terminal and a logger do to a line, undone: prefixes, boxes and wrapped messages; and what is a report.

Launchers and loggers add ranks, times and levels: `[rank0]: `, `[default1]:`, `(RayTrainWorker pid=7) `, `3: ` (srun),
`[2026-01-02 …] [ERROR] [trainer…] [RANK:1] `. An error text inside a quotation, a comment or a sentence is a mention,
not a report: a sample of the data, a hint, a line of source.

A logger wraps at blanks and may indent; a terminal wraps anywhere, within a word or a number, and keeps every blank.
The log does not say which it was: callers try both and take the one that yields more.
"""

from __future__ import annotations

import re

_RANK = re.compile(
    r"^(?:\[(?:rank|default|worker)?_?(\d{1,5})\]\s?:?\s?|\((?:\w{1,60})(?: rank=\d+)? pid=\d+(?:, ip=[\d.]+)?\)\s"
    r"|(\d{1,4}):\s|\[\d{1,5},\d{1,5}\]<std(?:err|out)>:\s?|[\w.\-]{1,60}:(?:\d{1,4} (?:out|err):)?\s(?=\[rank))"
    r"(?:\[rank(\d{1,5})\]:?\s?)?"
)
_LOGGED_RANK = re.compile(r"\[(?:RANK|Rank|rank)[: ]?(\d{1,5})\]")
# Characters that rich draws around a line, and every blank that `\s` matches. A regex would be slower: it would try the
# end of the line at each blank.
_BLANKS = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_BOX = "│┃║|" + _BLANKS
# Bracketed words, times and level names at the start of a line, as loggers write them.
_LOGGER = re.compile(
    r"^(?:\[[^\[\]]{1,120}\]\s*|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,12}\s*|(?:\d\d-\d\d )?\d\d:\d\d:\d\d\S{0,8}\s*"
    r"|(?:ERROR|CRITICAL|WARNING|INFO|DEBUG|FATAL|E|W|I)\d{0,4}\s*[:|\-\s]\s*"
    r"|[\w./\-]{1,160}:\d{1,6}\]?\s*[:|\-]?\s*|\d{1,20}\s+|[-|:]\s+)+"
)
_MARKED = re.compile(r"^\s{0,12}(?:>\s{0,3}){0,4}(?:\*\*|[*\-•]\s{1,3}|`{1,3})?")
_EXCEPTION = re.compile(
    r"(?:^|[\s.\[('\"])[A-Z]?\w{0,60}(?:Error|Exception|Warning)['\"]?\s?[:(]\s?['\"]?\s*(?:\[[^\[\]]{1,120}\]\s*)?$"
)
# A few words that announce an error; `what():` comes from C++.
_SHORT_ERROR = re.compile(
    r"(?i)^\W{0,4}(?:(?:\w+\s){0,3}(?:error|exception|fatal|reason|failed(?: to(?:\s\w+){1,4})?|warn)\W{1,3}"
    r"|what\(\):\s*)$"
)
_CODE = re.compile(r"^\s*(?:raise|assert|return|logger|log|LOG|warnings|print|if|except|with|#|//|>|\*|- )[\s.(]?")
# The most lines and characters of a wrapped message.
_MOST_LINES = 12
_LONGEST = 2000
# The start of something else: a traceback, a call, another exception, a logger's line, a progress bar.
_ELSE = re.compile(
    r"^\s*(?:Traceback \(most recent|During handling of|The above exception|File \"|\+-|[-=*]{8,}"
    r"|\[?\d{4}-\d\d-\d\d[ T]|(?:[\w.]{1,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Warning): |.{0,80}\d%\|)"
)


def split_rank(text: str) -> tuple[int | None, str]:
    """Return the rank that a line names, or None, and the line without the launcher's prefix."""
    match = _RANK.match(text)
    rank = None
    if match:
        number = match[3] or match[1] or match[2]
        rank = int(number) if number else None
        text = text[match.end() :]
    logged = _LOGGED_RANK.search(text[:300])
    return int(logged[1]) if logged else rank, text


def unboxed(text: str) -> str:
    """Return the line without the frame that rich draws around tracebacks."""
    return text.lstrip(_BOX + "❱").rstrip(_BOX)


def unquoted(text: str) -> str:
    """Return the line without backticks around all of it, as in issue threads."""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "`" and text[1] != "`" else text


def unlogged(text: str) -> str:
    """Return the line without a logger's prefix, and without the marks of a quotation, a list or bold type."""
    return _LOGGER.sub("", _MARKED.sub("", text))


def reports(text: str, start: int) -> bool:
    """Whether an error text at `start` is reported on this line, not merely mentioned."""
    before = text[max(0, start - 400) : start]
    if not before.strip(" \t│┃║|❱"):
        return True
    if _CODE.match(before):
        return False
    named = _EXCEPTION.search(before)
    if named:
        return before.count('"', 0, named.start()) % 2 == 0
    if before.count('"') % 2 or before.count("`") % 2:
        return False
    rest = _LOGGER.sub("", before)
    return not rest.strip() or bool(_SHORT_ERROR.match(rest))


def unfolded(text: str, following: str) -> tuple[str, str]:
    """Return a line joined with the lines that may belong to it: as a terminal wraps it, and as a logger does."""
    lines = [text.rstrip("\r\n")]
    for line in following.lstrip("\r").removeprefix("\n").split("\n")[:_MOST_LINES]:
        if not line.strip(" \t\r│┃║|") or _ELSE.match(line):
            break
        lines.append(split_rank(line.rstrip("\r"))[1])
    first, *rest = lines
    # Inside a box, the blanks at both ends belong to the box.
    boxed = any(line[:1] in "│┃║" for line in rest)
    by_width = first + "".join(unboxed(line) if boxed else line for line in rest)
    by_words = " ".join(filter(None, (first.strip(" \t│┃║|"), *(unboxed(line) for line in rest))))
    return by_width[:_LONGEST], by_words[:_LONGEST]
