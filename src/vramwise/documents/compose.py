"""Composes a text into a tree of nodes with character offsets, including the places of aliases and anchors.

PyYAML's own composer forgets the place of an alias and recurses with the nesting. This one works event by event, checks
the limits on nesting and on expanded values while it reads, and never recurses. It knows only YAML's structure:
document.py constructs the values. Errors of PyYAML's scanner and parser are reworded as one sentence: what, why, what
to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import yaml

from vramwise.bundled import bundled_json
from vramwise.errors import ConfigError
from vramwise.limits.ceilings import CONFIG_DEPTH, CONFIG_VALUES
from vramwise.limits.json_values import OverBudget
from vramwise.types import place_of

# libyaml is eight times faster than PyYAML's own scanner, but reads some texts differently: tabs and non-ASCII
# characters, directives, tags, `?`, `|#`. It is used only for texts without these.
_DIFFERS_IN_LIBYAML = re.compile(r"[^\n -~]|[!?]|^%|[|>][-+0-9]*#", re.MULTILINE)
_COLON = re.compile(r"\s*:")
_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", None)


@dataclass(slots=True, eq=False)
class Node:
    """A node and its span: offsets, end exclusive, including anchor and tag.

    A block collection ends with its last child. An alias has the `yaml` node of its target.
    """

    kind: Literal["scalar", "sequence", "mapping", "alias"]
    start: int
    end: int
    yaml: yaml.Node
    full_end: int = 0  # the end including the blank lines that may belong to a block scalar
    flow: bool = False
    style: str | None = None  # of scalars: None (plain), "'", '"', "|" or ">"
    anchor: str | None = None
    target: Node | None = None  # of aliases
    aliased: bool = False  # some alias points at this node
    closed: bool = True
    size: int = 1  # number of values after aliases are expanded
    height: int = 1  # levels of nesting after aliases are expanded
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    pending_key: Node | None = None  # while it is being read


def compose(text: str) -> Node | None:
    """Return the root node of a text, or None if it contains no document. Raises ConfigError with the place."""
    if _FAST_LOADER is not None and not _DIFFERS_IN_LIBYAML.search(text):
        try:
            return _Builder(text, _FAST_LOADER(text)).build()
        except yaml.YAMLError:
            pass  # the slow loader decides, and its errors are the ones that we can explain
    return compose_slowly(text)


def compose_slowly(text: str) -> Node | None:
    """Like `compose`, but with PyYAML's own scanner, which is the authority on what a text means."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise complaint(text, error) from error
    try:
        return _Builder(text, loader).build()
    except yaml.YAMLError as error:
        raise complaint(text, error) from error
    except (ValueError, OverflowError) as error:
        # PyYAML does not catch an escape beyond Unicode ("\U00110000") or a version number of thousands of digits.
        raise error_at(text, loader.get_mark().index, "this escape or number is out of range") from error
    finally:
        loader.dispose()


class _Builder:
    """Turns the events of one loader into nodes."""

    def __init__(self, text: str, loader: Any) -> None:
        self.text = text
        self.loader = loader
        self.anchors: dict[str, Node] = {}
        self.open: list[Node] = []
        self.root: Node | None = None

    def build(self) -> Node | None:
        documents = 0
        while True:
            event: Any = self.loader.get_event()
            if isinstance(event, yaml.StreamEndEvent):
                return self.root
            if isinstance(event, yaml.DocumentStartEvent):
                start: Any = event.start_mark
                documents += 1
                if documents > 1:
                    raise self.error(
                        start.index,
                        "a second YAML document starts here: keep only one, or split the file",
                    )
            elif isinstance(event, yaml.NodeEvent):
                self.start_node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.end_collection(event)

    def start_node(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self.attach(self.alias(event))
            return
        start_mark, end_mark, tag = event.start_mark, event.end_mark, event.tag
        start, end = start_mark.index, end_mark.index
        if isinstance(event, yaml.ScalarEvent):
            if tag is None or tag == "!":
                tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            scalar = yaml.ScalarNode(tag, event.value, start_mark, end_mark, style=event.style)
            # If nothing is written, PyYAML reports the style None and libyaml "": both mean plain.
            node = Node("scalar", start, self.scalar_end(event, end), scalar, end, style=event.style or None)
            self.name(node, event)
            self.attach(node)
        else:
            node = self.collection(event, tag, start)
            self.name(node, event)
            self.open.append(node)
            if len(self.open) >= CONFIG_DEPTH:
                raise self.over(start, f"nested more than {CONFIG_DEPTH} levels deep: too deep for a config")

    def scalar_end(self, event: Any, end: int) -> int:
        """Return the end of a scalar. A block scalar's mark is after the blank lines that follow it; these are cut."""
        if event.style not in ("|", ">"):
            return int(end)
        return len(self.text[:end].rstrip(" \t\r\n\x85\u2028\u2029"))

    def collection(self, event: Any, tag: str | None, start: int) -> Node:
        mapping = isinstance(event, yaml.MappingStartEvent)
        node_type = yaml.MappingNode if mapping else yaml.SequenceNode
        if tag is None or tag == "!":
            tag = self.loader.resolve(node_type, None, event.implicit)
        inner = node_type(tag, [], event.start_mark, None, flow_style=event.flow_style)
        kind: Literal["mapping", "sequence"] = "mapping" if mapping else "sequence"
        return Node(kind, start, event.end_mark.index, inner, flow=bool(event.flow_style), closed=False)

    def name(self, node: Node, event: Any) -> None:
        if event.anchor is None:
            return
        if event.anchor in self.anchors:
            first = error_at(self.text, self.anchors[event.anchor].start, "").line
            raise self.error(
                node.start,
                f"the anchor '&{event.anchor}' is already used on line {first}: rename one of them",
            )
        node.anchor = event.anchor
        self.anchors[event.anchor] = node

    def alias(self, event: Any) -> Node:
        start = event.start_mark.index
        target = self.anchors.get(event.anchor)
        if target is None:
            raise self.error(
                start,
                f"'*{event.anchor}' refers to an undefined anchor: define '&{event.anchor}' above it, or quote the "
                "value if the '*' is part of it",
            )
        if not target.closed:
            raise self.error(start, f"'*{event.anchor}' refers to the value that contains it, which would never end")
        if len(self.open) + target.height > CONFIG_DEPTH:
            raise self.over(start, f"the aliases here nest more than {CONFIG_DEPTH} levels deep: too deep for a config")
        target.aliased = True
        size, height = target.size, target.height
        end = event.end_mark.index
        return Node("alias", start, end, target.yaml, target=target, size=size, height=height)

    def end_collection(self, event: Any) -> None:
        node = self.open.pop()
        node.closed = True
        if node.flow:
            node.end = event.end_mark.index
        self.attach(node)

    def attach(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if parent.kind == "sequence":
            parent.items.append(node)
            parent.yaml.value.append(node.yaml)
        elif parent.pending_key is None:
            parent.pending_key = node
        else:
            if node.start == node.end:
                self.place_nothing(parent.pending_key, node)
            parent.pairs.append((parent.pending_key, node))
            parent.yaml.value.append((parent.pending_key.yaml, node.yaml))
            parent.pending_key = None
        parent.end = max(parent.end, node.end)
        parent.full_end = max(parent.full_end, parent.end, node.full_end)
        parent.height = max(parent.height, node.height + 1)
        parent.size += node.size
        if parent.size > CONFIG_VALUES:
            raise self.over(node.start, self.too_many(node))

    def place_nothing(self, key: Node, value: Node) -> None:
        """Place an empty value right after its colon: PyYAML and libyaml place it differently."""
        colon = _COLON.match(self.text, key.end)
        value.start = value.end = value.full_end = key.end if colon is None else colon.end()

    def too_many(self, node: Node) -> str:
        if self.anchors:
            return f"the aliases here expand to more than {CONFIG_VALUES:,} values: too many for a config"
        return f"more than {CONFIG_VALUES:,} values: too many for a config"

    def over(self, offset: int, message: str) -> OverBudget:
        place = self.error(offset, message)
        return OverBudget(message, line=place.line, column=place.column)

    def error(self, offset: int, message: str) -> ConfigError:
        return error_at(self.text, offset, message)


class _Sentence(NamedTuple):
    """Our words for an error that contains `sign`; `at_context`: report the place where the construct began."""

    sign: str
    words: str
    at_context: bool = False


_GENERIC = "not valid YAML: correct it, or quote the value if it is text"


@cache
def _sentences() -> tuple[_Sentence, ...]:
    """Return the sentences of `complaints.json`; the first match wins."""
    return tuple(_Sentence(**row) for row in bundled_json("complaints.json", __file__))


def error_at(text: str, offset: int, message: str) -> ConfigError:
    """Return a ConfigError at a character of the text."""
    place = place_of(text, offset, offset)
    return ConfigError(message, line=place.line, column=place.column)


def complaint(text: str, error: yaml.YAMLError) -> ConfigError:
    """Return our ConfigError for an error of PyYAML."""
    problem = str(getattr(error, "problem", "") or "")
    context = str(getattr(error, "context", "") or "")
    here = getattr(error, "problem_mark", None)
    start = getattr(error, "context_mark", None) or here
    here = here or start
    offset = 0 if here is None else here.index
    if "cannot start any token" in problem:
        return error_at(text, offset, _bad_character(text, offset))
    for sentence in _sentences():
        if sentence.sign in f"{context} {problem}":
            place = start.index if sentence.at_context and start is not None else offset
            return error_at(text, place, sentence.words)
    return error_at(text, offset, _GENERIC)


def _bad_character(text: str, offset: int) -> str:
    character = text[offset : offset + 1]
    if character == "\t":
        line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
        if not text[line_start:offset].strip(" \t\ufeff"):
            return "this line is indented with a tab: use spaces"
        return "unexpected tab between words: use a space"
    return f"a value cannot start with '{character}': quote it"
