"""The config as the user wrote it: its text, its values, the place of each value, and lookup by dotted key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

# A path to a value in a config: mapping keys are str, list positions int. ("datasets", 0, "path")
KeyPath = tuple[str | int, ...]
# (sign, version) pairs, as in requirements: ("==", "0.12.2"), ("<", "0.13").
Bounds = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A span of a text. Lines and columns count from 1, columns in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


START = Place(line=1, column=1, end_line=1, end_column=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where one key and its value are in the text: character offsets, end exclusive. List items have no key."""

    key_start: int
    key_end: int
    value_start: int
    value_end: int
    # True if the value is written elsewhere: an alias (`*x`) or a `<<` merge. Edits must not change a shared value.
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKey:
    """A key that appears twice in one mapping: the last one counts."""

    key: str
    first: Place
    last: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid:
    """A setting that a script leaves open.

    `key` is the setting, `name` the name that would supply it (`--set NAME=…`), `why` the reason, `either` the values
    that the script chooses between, if they are known.
    """

    key: str
    name: str
    line: int
    why: str
    either: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A call that takes keyword arguments: its position, and the span of each of them inside it.

    `others`: the spans of positional and unpacked arguments. `unpacks`: whether it has a `**mapping`.
    """

    name: str
    line: int
    open_end: int  # the offset after the opening bracket
    close_start: int  # the offset of the closing bracket
    arguments: Mapping[str, tuple[int, int]]
    others: tuple[tuple[int, int], ...] = ()
    unpacks: bool = False


class Assumed(NamedTuple):
    """An assumption about a script. `about`: the key, or what else of the script it is about."""

    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How a document was read from Python source. `trainer` and `kind` come from the call that trains.

    `homes`: the calls that hold keys, by role. `home_of`: maps a key to its role and argument. `cells`: the first line
    and the number of each cell of a notebook. `raw`: the file's content; of an edited notebook, only the sources of its
    code cells, as a notebook, with what the file has `around` them. `file_text`: returns the whole content. `reread`:
    reads another `raw` in the same way.
    """

    trainer: str
    kind: str
    line: int
    trainings: tuple[str, ...]
    chosen: int
    reread: Callable[[bytes, tuple[str, ...]], Document]
    homes: Mapping[str, Home]
    home_of: Callable[[str], tuple[str, str] | None]
    # Returns the flag of the script's command line that sets a key; "" if there is none. `given`: reads the script
    # with more words on its command line.
    flag_of: Callable[[str], str] = lambda _: ""
    given: Callable[[str], Document] | None = None
    unsaid: tuple[Unsaid, ...] = ()
    # Whether the source sets a key, or may set it, to something that is not known.
    leaves_open: Callable[[str], bool] = lambda _: False
    assumed: tuple[Assumed, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)  # allocator variables that the source sets itself
    cells: tuple[tuple[int, int], ...] = ()
    raw: str
    around: tuple[str, ...] = ()
    file_text: Callable[[], str]
    encoding: str = "utf-8"
    split_seed: int | None = None  # the seed of the script's only `train_test_split`
    facts: Mapping[str, int] = field(default_factory=dict)  # other things that the source does, each with its line


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A config's text (with its BOM and line endings), its values, and the span of every key.

    `script` is set if the document was read from Python source or a notebook; `text` is then the code.
    """

    path: str
    text: str
    values: dict[str, Any]
    spans: Mapping[KeyPath, Span]
    duplicates: tuple[DuplicateKey, ...] = ()
    script: Script | None = None
    # The command whose options these are (`run.sh:12`): nobody wrote the text, so no line of it is shown.
    given_at: str = ""

    @property
    def place_name(self) -> str:
        """What messages name as its place: its path, or the command whose options it holds."""
        return self.given_at or self.path

    @property
    def file_text(self) -> str:
        """The content of the file: the text itself, or the original text of a script or notebook."""
        return self.text if self.script is None else self.script.file_text()

    @property
    def file_bytes(self) -> bytes:
        """The content of the file, in its encoding."""
        return self.file_text.encode("utf-8" if self.script is None else self.script.encoding)

    def cell(self, line: int) -> tuple[int, int] | None:
        """Return the number of the notebook cell that contains a line, and the line's number in that cell.

        Returns None outside notebooks.
        """
        if self.script is None or not self.script.cells:
            return None
        first, number = max((one for one in self.script.cells if one[0] <= line), default=self.script.cells[0])
        return number, line - first + 1

    def label(self, line: int) -> str:
        """Return a line's number for display; in a notebook, the cell and the line in it."""
        found = self.cell(line)
        return str(line) if found is None else f"cell {found[0]}:{found[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a resolved value came from, and why it is what it is."""

    kind: Literal["file", "default", "derived", "option", "environment", "assumed"]
    why: str
    key: str | None = None
    place: Place | None = None


class Config:
    """The values written in the file, by dotted key: `config.get("fsdp_config.offload_params")`.

    `values` are the file's values after the trainer's coercions and the renaming of old spellings. `sources` maps a
    renamed key to the key in the file, so that places and edits point at what the user wrote. `asked` are the top-level
    keys that were looked up while the run was resolved; no other key affects the run.
    """

    __slots__ = ("_sources", "asked", "document", "values")

    def __init__(
        self,
        document: Document,
        values: Mapping[str, Any],
        sources: Mapping[str, str],
        asked: AbstractSet[str | int] = frozenset(),
    ) -> None:
        self.document = document
        self.values = values
        self._sources = sources
        self.asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a dotted key, or the default if it is absent or null."""
        found: Any = self.values
        for part in split_key(key):
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return default
        return default if found is None else found

    def __contains__(self, key: str) -> bool:
        """Return whether the key is written, even with a null value."""
        path = self.path(key)
        if self.document.script is not None and len(path) == 1:  # a value that a call implies has no span
            return path[0] in self.document.values
        return path in self.document.spans

    def path(self, key: str) -> KeyPath:
        """Return the path of a dotted key in the file, under the spelling that the file uses."""
        return split_key(self._sources.get(key, key))

    def place(self, key: str) -> Place | None:
        """Return where the key is written, or None."""
        span = None if self.document.given_at else self.document.spans.get(self.path(key))
        return None if span is None else place_of(self.document.text, span.key_start, span.value_end)


class Asked(Config):
    """A config while a run is resolved from it: it records which keys are looked up."""

    __slots__ = ("_noted",)

    def __init__(self, document: Document, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        self._noted: set[str | int] = set()
        super().__init__(document, values, sources, self._noted)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a dotted key, or the default if it is absent or null."""
        self._noted.add(split_key(key)[0])
        return super().get(key, default)

    def __contains__(self, key: str) -> bool:
        """Return whether the key is written, even with a null value."""
        self._noted.add(self.path(key)[0])
        return super().__contains__(key)

    def settled(self) -> Config:
        """Return the config of the resolved run, with what was asked until now."""
        return Config(self.document, self.values, self._sources, frozenset(self._noted))


def place_of(text: str, start: int, end: int) -> Place:
    """Line and column of a span of the text."""
    line, column = _line_and_column(text, start)
    end_line, end_column = _line_and_column(text, end)
    return Place(line=line, column=column, end_line=end_line, end_column=end_column)


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    head = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    bom = 1 if head.startswith("\ufeff") and "\n" not in head else 0
    return head.count("\n") + 1, len(head) - (head.rfind("\n") + 1) + 1 - bom


@lru_cache(maxsize=4096)
def split_key(key: str) -> KeyPath:
    r"""Split a dotted key. Digits are list positions; `\.` is a dot inside a key: `options.triton\.cudagraphs`."""
    parts = key.replace("\\.", "\0").split(".")
    return tuple(int(part) if _is_position(part) else part.replace("\0", ".") for part in parts)


def _is_position(part: str) -> bool:
    # Longer numbers are not list positions, and Python refuses to parse integers of thousands of digits.
    return part.isascii() and part.isdigit() and len(part) < 10


def join_key(path: KeyPath) -> str:
    """The inverse of `split_key`."""
    return ".".join(str(part).replace(".", "\\.") for part in path)
