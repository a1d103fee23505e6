"""Parses a script, or the joined cells of a notebook, into a syntax tree. Magics become comments; nothing is run."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from vramwise.documents.python.notebook import CELL_END, Cell, cells_of, is_notebook
from vramwise.documents.python.original import code_of, decoded
from vramwise.errors import ConfigError
from vramwise.limits.ceilings import READER_WORDS
from vramwise.limits.meter import work
from vramwise.types import version_parts

# Larger than any real script; ast would take gigabytes for more. And what parsing a word takes.
_MOST_CHARACTERS = 2_000_000
_WORD_UNITS = 50
# Possessive, so that a line takes linear time.
_MAGIC = re.compile(r"^([ \t]*+)(?:[%!?]|[\w, \t]++=[ \t]*+[%!](?!=)|[\w.]++\?{1,2}+[ \t]*+$)", re.MULTILINE)
# What becomes nodes of the syntax tree; text and comments count, too.
_WORD = re.compile(r"\w+|\.{3}|[^\w\s,.:=)\]}]")
_TIMED = re.compile(r"([ \t]*)%time[ \t]+(?=\S)")
# A cell with one of these is not skipped if it cannot be parsed.
_NEEDED = re.compile(r"Trainer\b|from_pretrained|get_peft_model|Config\(|TrainingArguments")
_INSTALL = re.compile(r"\bpip3?\s+install\b|\buv\s+pip\s+install\b")
_RANGE = re.compile(r"""(?<![\w./@-])([A-Za-z][\w.-]*)(?:\[[\w,-]*\])?((?:,?[<>!]=?[0-9][\w.]*)+)""")
_BOUND = re.compile(r"([<>!]=?)([0-9][\w.]*)")
_REPOSITORY = re.compile(r"([\w-]+)(?:\.git)?(?=['\"#]|$)")
_COMMENTED = re.compile(r"\s*#\s*[!%]")
_PIN = re.compile(r"""(?<![\w./@-])([A-Za-z][\w.-]*)(?:\[[\w,-]*\])?==([0-9][\w.+!-]*)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Parsed source: `text` is the code as the user sees it; all lines and offsets refer to it."""

    text: str
    tree: ast.Module
    cells: tuple[Cell, ...] = ()
    # The file's content, with its mark and line ends, and its encoding.
    raw: str = ""
    encoding: str = "utf-8"
    # Package → version, from lines that install packages.
    versions: dict[str, str] = field(default_factory=dict)
    # The numbers of skipped notebook cells that are not Python.
    unread: tuple[int, ...] = ()
    _starts: list[int] = field(default_factory=list)
    # Line → where its characters of several bytes end, and how many bytes more than characters it has up to there.
    _wide: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def offset(self, line: int, column_bytes: int) -> int:
        """Return the character offset of an ast position: lines from 1, columns in UTF-8 bytes."""
        start = self._starts[line - 1]
        if line not in self._wide:
            end = self._starts[line] if line < len(self._starts) else len(self.text)
            self._wide[line] = _wide_characters(self.text[start:end])
        wide = self._wide[line]
        return start + column_bytes - (wide[bisect_left(wide, (column_bytes + 1,)) - 1][1] if wide else 0)

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Return the start and end of a node in the text."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)


def read_source(data: bytes) -> Source:
    """Parse a script or a notebook; raises ConfigError with its place if it is neither."""
    raw, encoding = decoded(data)
    text = code_of(raw)
    cells: tuple[Cell, ...] = ()
    if is_notebook(raw):
        cells = cells_of(raw)
        text = "".join(cell.text for cell in cells)
    elif text.lstrip().startswith("{") and '"cells"' in text:
        raise ConfigError(
            "this is no notebook of today's format, a JSON object with a list of cells: save it in Jupyter"
        )
    if "\0" in text:
        raise ConfigError("this source contains a NUL character: it is not Python", line=1, column=1)
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"this source has {len(text):,} characters: the limit is {_MOST_CHARACTERS:,}")
    words = len(text) // 8 if len(text) <= READER_WORDS else sum(1 for _ in _WORD.finditer(text))
    if words > READER_WORDS:
        raise ConfigError(f"this source has {words:,} words and signs: the limit is {READER_WORDS:,}")
    work(_WORD_UNITS * words)
    tree, unread = _tree_of(_without_magics(text), cells)
    return Source(
        text=text,
        tree=tree,
        cells=cells,
        raw=raw,
        encoding=encoding,
        versions=_versions(text),
        unread=unread,
        _starts=_line_starts(text),
    )


def _tree_of(text: str, cells: tuple[Cell, ...]) -> tuple[ast.Module, tuple[int, ...]]:
    """Return the syntax tree, and for a notebook the numbers of cells that cannot be parsed and are skipped.

    Raises ConfigError if such a cell may matter for the training.
    """
    try:
        return _tree(text), ()
    except ConfigError:
        if not cells:
            raise
        lines = text.split("\n")
        unread: list[int] = []
        for cell in cells:
            first, count = cell.first_line - 1, cell.text.count("\n")
            own = "\n".join(lines[first : first + count])
            if not _parses(own):
                if _NEEDED.search(own):
                    raise
                lines[first : first + count] = [""] * count
                unread.append(cell.number)
        return _tree("\n".join(lines)), tuple(unread)


def _parses(text: str) -> bool:
    try:
        _tree(text)
    except ConfigError:
        return False
    return True


def _tree(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # do not warn about escapes in the user's source
            return ast.parse(text)
    except SyntaxError as error:
        said = f"cannot parse this Python source: {error.msg}"
        raise ConfigError(said, line=error.lineno, column=max(1, error.offset or 1)) from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        raise ConfigError("this source is nested too deeply") from None


def _without_magics(text: str) -> str:
    """Return the text with IPython magics blanked out; all lines and columns keep their positions."""
    if not _MAGIC.search(text):
        return text
    lines = text.split("\n")
    launched = {name.rpartition("/")[2] for line in lines for name in _launched(line)}
    at = 0
    while at < len(lines):
        found = _MAGIC.match(lines[at])
        if found is not None and not _is_python(lines[at], lines[at - 1] if at else ""):
            if lines[at].lstrip().startswith("%%") and not _keeps_cell(lines[at], launched):
                at = _blank_cell(lines, at)
                continue
            more = lines[at].rstrip().endswith("\\")
            timed = _TIMED.match(lines[at])
            if timed is not None:  # the timed code is Python and keeps its position
                start = len(timed[1])
                lines[at] = f"{timed[1]}0;{' ' * (timed.end() - start - 2)}{lines[at][timed.end() :]}"
                at += 1
                continue
            lines[at] = f"{found[1]}pass"
            while more and at + 1 < len(lines):
                at += 1
                more = lines[at].rstrip().endswith("\\")
                lines[at] = ""
        at += 1
    return "\n".join(lines)


def _keeps_cell(line: str, launched: set[str]) -> bool:
    """Return whether a cell with this magic runs as Python, or is written to a script that is launched."""
    written = _WRITTEN.match(line)
    if written is not None:
        return written[1].rpartition("/")[2] in launched
    return line.lstrip().startswith(("%%capture", "%%time"))


def _is_python(line: str, before: str) -> bool:
    """Return whether a line that looks like a magic continues an expression: `% (a, b)` or `!= x`."""
    shown = line.strip()
    return shown.startswith(("!=", "% ", "%(", "?:")) or before.rstrip().endswith(("(", ",", "\\", "["))


def _blank_cell(lines: list[str], at: int) -> int:
    """Blank a cell in another language (`%%bash`) and return the line after it."""
    while at < len(lines) and lines[at] != CELL_END:
        lines[at] = ""
        at += 1
    return at


def _launched(line: str) -> list[str]:
    """Return the first script that a line such as `!python train.py` names."""
    runs = (_LAUNCHED.match(one[0]) for one in _RUN.finditer(line)) if line.lstrip().startswith("!") else ()
    return [one[0] for one in runs if one is not None][:1]


_WRITTEN = re.compile(r"\s*%%(?:writefile|file)\s+(?:-a\s+)?(\S+\.py)\s*$")
_LAUNCHED = re.compile(r"[\w./-]+\.py\b")
_RUN = re.compile(r"[\w./-]++")


def _versions(text: str) -> dict[str, str]:
    """Return the packages that the script's own metadata pins, or pip lines that no later line replaces.

    Commented lines do not count.
    """
    found = {_package(name): version for name, version in _PIN.findall(_metadata(text))}
    for whole in text.replace("\\\n", " ").split("\n"):
        line = whole.partition(" #")[0]
        if not _INSTALL.search(line) or _COMMENTED.match(line):
            continue
        for package in _replaced(line, found):
            found.pop(package, None)
        found |= {_package(name): version for name, version in _PIN.findall(line)}
    return found


def _metadata(text: str) -> str:
    """Return the script's own metadata, in comments (PEP 723); empty if it does not end."""
    held: list[str] | None = None
    for line in text.split("\n") if "# /// script" in text else ():
        if held is None:
            held = [] if line.rstrip(" \t") == "# /// script" else None
        elif line.rstrip(" \t") == "# ///":
            return "\n".join(held)
        elif line.startswith("#"):
            held.append(line)
        else:
            held = None
    return ""


def _replaced(line: str, pinned: Mapping[str, str]) -> list[str]:
    """Return the pins that a pip line removes: by a range, by `--upgrade`, or by a repository's newest version."""
    words = {_package(word.strip("'\"")) for word in line.split()}
    newest = words if words & {"-u", "--upgrade"} else set()
    newest |= {_package(name) for word in line.split() for name in _repository(word)}
    outside = {_package(name): bounds for name, bounds in _RANGE.findall(line)}
    ranges = [one for one in outside if one in pinned and not _inside(pinned[one], outside[one])]
    return [*(one for one in newest if one in pinned), *ranges]


def _repository(word: str) -> list[str]:
    """Return the package that `git+https://…/name.git` installs."""
    _, found, address = word.partition("git+")
    names = (_REPOSITORY.match(part) for part in reversed(address.split("/")[1:] if found else []))
    return [one[1] for one in names if one is not None][:1]


def _package(name: str) -> str:
    return name.lower().replace("_", "-")


def _inside(version: str, bounds: str) -> bool:
    at = version_parts(version)
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "!=": operator.ne}
    return all(compare[sign](at, version_parts(bound)) for sign, bound in _BOUND.findall(bounds) if sign in compare)


def _wide_characters(line: str) -> list[tuple[int, int]]:
    found = [] if line.isascii() else [(0, 0)]
    for one in () if line.isascii() else re.finditer(r"[^\x00-\x7f]", line):
        more = found[-1][1] + len(one[0].encode("utf-8", "surrogatepass")) - 1
        found.append((one.end() + more, more))
    return found


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]
