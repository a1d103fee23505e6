"""Parses text into a Document: the values of `yaml.safe_load` (YAML 1.1, as trainers read them), and all spans.

Knows YAML, not trainers. Reads no files: bytes come from files.py. Stricter than `safe_load` for obvious mistakes:
unknown tags, values that contain themselves or explode, several documents. The last of duplicate keys counts, and both
places are kept.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from vramwise.documents.compose import Node, complaint, compose, error_at
from vramwise.documents.refusal import too_large
from vramwise.documents.spans import TAG, collect_spans, is_merge, key_of
from vramwise.errors import ConfigError
from vramwise.limits.ceilings import CONFIG_BYTES
from vramwise.types import Document, DuplicateKey, KeyPath, Span, place_of

_KNOWN_TAGS = {
    TAG + name
    for name in ("null", "bool", "int", "float", "binary", "timestamp", "omap", "pairs", "set", "str", "seq", "map")
}
# Configs contain no longer numbers. Python refuses to parse integers of more than 4300 digits, and a product of a few
# settings must still fit into a float.
_MAX_NUMBER_LENGTH = 64
# The complement of what YAML 1.1 calls printable (PyYAML's reader refuses the same characters).
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KEY_TYPES = (str, int, float, type(None))  # JSON's key types; a date or bytes as a key is a mistake
_UNHASHABLE = "a list or mapping cannot be a key: quote it if it is text such as '{{ template }}'"


def parse_document(path: str, data: bytes) -> Document:
    """Parse a config's bytes; `path` is only its name. Raises ConfigError with line and column."""
    text = _decode(data)
    root = compose(text)
    if root is None or (root.kind == "scalar" and root.yaml.value == "" and root.style is None):
        what = "only comments" if text.strip("\ufeff \t\r\n-") else "no content"
        raise error_at(text, 0, f"this file is empty ({what}): expected `key: value` lines")
    values, twice = _construct(text, root)
    spans: dict[KeyPath, Span] = {}
    collect_spans(root, (), False, spans)
    return Document(path=path, text=text, values=values, spans=spans, duplicates=twice)


def parse_value(text: str) -> Any:
    """Parse one YAML value, with the same limits as a config. Raises ConfigError."""
    text = _decode(text.encode("utf-8", "surrogatepass"))
    root = compose(text)
    if root is None:
        return None
    constructor = _Constructor(text)
    _check_tree(text, root, constructor)
    return constructor.construct_document(root.yaml)


def _decode(data: bytes) -> str:
    if len(data) > CONFIG_BYTES:
        raise too_large()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        kind = 32 if data[:4] == b"\xff\xfe\0\0" else 16
        raise ConfigError(f"this file is UTF-{kind}, not UTF-8: save it as UTF-8", line=1, column=1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        message = f"the byte 0x{data[error.start]:02x} is not valid UTF-8: save the file as UTF-8"
        raise error_at(before, len(before), message) from None
    bad = _UNPRINTABLE.search(text)
    if bad is not None:
        raise error_at(text, bad.start(), f"YAML does not allow the control character U+{ord(bad[0]):04X}: remove it")
    return text


def _construct(text: str, root: Node) -> tuple[dict[str, Any], tuple[DuplicateKey, ...]]:
    """Return the values of the tree, as SafeConstructor builds them, and the duplicate keys."""
    constructor = _Constructor(text)
    twice = _check_tree(text, root, constructor)
    if root.kind != "mapping" or root.yaml.tag != TAG + "map":
        what = {"sequence": "a list", "scalar": "a single value"}.get(root.kind, "a set or pairs")
        raise error_at(text, root.start, f"not a YAML config: expected `key: value` lines, found {what}")
    values = constructor.construct_document(root.yaml)
    for key in values:
        if not isinstance(key, str):
            raise _key_not_text(text, root, key, constructor)
    checked: dict[str, Any] = values
    return checked, twice


def _check_tree(text: str, root: Node, constructor: _Constructor) -> tuple[DuplicateKey, ...]:
    """Raise ConfigError for nodes that a config cannot contain; return the duplicate keys."""
    mappings = _check_nodes(text, root)
    return tuple(found for mapping in mappings for found in _check_keys(text, mapping, constructor))


class _Constructor(SafeConstructor):
    """SafeConstructor whose errors have a place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def construct_document(self, node: yaml.Node) -> Any:
        try:
            return super().construct_document(node)
        except yaml.MarkedYAMLError as error:  # collections are filled after construct_object returns
            raise self._refusal(node, error) from None

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except yaml.MarkedYAMLError as error:
            raise self._refusal(node, error) from None
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            kind = node.tag.removeprefix(TAG)
            value = repr(str(node.value)[:40])[1:-1] if isinstance(node, yaml.ScalarNode) else ""
            message = f"'{value}' looks like a {kind} but is not valid: correct it, or quote it if it is text"
            raise error_at(self.text, node.start_mark.index, message) from None

    def _refusal(self, node: yaml.Node, error: yaml.MarkedYAMLError) -> ConfigError:
        problem = error.problem or ""
        mark = error.problem_mark or node.start_mark
        if "for merging" in problem:
            return error_at(
                self.text, mark.index, "'<<' can only merge a mapping or a list of mappings: use '<<: *name'"
            )
        if "unhashable" in problem:
            return error_at(self.text, mark.index, _UNHASHABLE)
        if "could not determine a constructor" in problem:
            words = f"a bare '{node.value}' has a special meaning in YAML 1.1: quote it"
            return error_at(self.text, mark.index, words)
        if "expected a" in problem:
            return error_at(self.text, mark.index, "the tag here ('!!…') does not match its value: remove the tag")
        return complaint(self.text, error)


def _check_nodes(text: str, root: Node) -> list[Node]:
    """Raise ConfigError for unknown tags and oversized numbers; return every mapping once."""
    mappings: list[Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.kind == "alias":
            continue
        if node.yaml.tag.startswith(TAG):
            _check_number(text, node)
        if node.yaml.tag not in _KNOWN_TAGS and text[node.start] in "!&" and "!" in text[node.start : node.end]:
            at = text.find("!", node.start)
            tag = re.split(r"[\s,\]}]", text[at : at + 60], maxsplit=1)[0]
            raise error_at(
                text, at, f"the tag '{tag}' is not allowed: a config contains plain values, not objects. Remove the tag"
            )
        waiting.extend(reversed(node.items))
        for key, value in reversed(node.pairs):
            waiting += (value, key)
        if node.kind == "mapping":
            mappings.append(node)
    return mappings


def _check_number(text: str, node: Node) -> None:
    if node.kind != "scalar":
        return
    value: str = node.yaml.value
    if node.yaml.tag in (TAG + "int", TAG + "float") and len(value) > _MAX_NUMBER_LENGTH:
        raise error_at(text, node.start, f"this number has {len(value):,} digits: quote it if it is text")
    if node.style == '"' and "\\" in text[node.start : node.end] and re.search("[\ud800-\udfff]", value):
        raise error_at(
            text, node.start, "this text contains half of a surrogate pair as an escape: write the character itself"
        )


def _check_keys(text: str, mapping: Node, constructor: _Constructor) -> list[DuplicateKey]:
    """Raise ConfigError for invalid keys; return duplicates. The last one counts, as in `safe_load`."""
    seen: dict[Any, Node] = {}
    twice: list[DuplicateKey] = []
    for key_node, _ in mapping.pairs:
        if is_merge(key_node):
            continue
        key = key_of(key_node, constructor)
        if not isinstance(key, Hashable):
            raise error_at(text, key_node.start, _UNHASHABLE)
        if mapping.yaml.tag == TAG + "map" and not isinstance(key, _KEY_TYPES):
            written = text[key_node.start : key_node.end][:40]
            raise error_at(text, key_node.start, f"YAML reads the key '{written}' as a date or binary value: quote it")
        if key in seen:
            first, last = (place_of(text, node.start, node.end) for node in (seen[key], key_node))
            twice.append(DuplicateKey(key=str(key), first=first, last=last))
        seen[key] = key_node
    return twice


def _key_not_text(text: str, root: Node, key: object, constructor: _Constructor) -> ConfigError:
    for key_node, _ in root.pairs:
        if not is_merge(key_node) and key_of(key_node, constructor) is key:
            written = text[key_node.start : key_node.end]
            return error_at(
                text, key_node.start, f"YAML reads the key '{written}' as {key!r}, not as text: quote or rename it"
            )
    return error_at(text, root.start, f"YAML reads a merged key as {key!r}, not as text: quote or rename it")
