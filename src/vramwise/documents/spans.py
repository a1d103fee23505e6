"""Finds the span of every key in a tree of nodes, following merges (`<<`) and aliases as PyYAML does.

Knows nodes, not text: it reads no characters and refuses nothing.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from vramwise.documents.compose import Node
from vramwise.types import KeyPath, Span

TAG = "tag:yaml.org,2002:"
_STRING_KEY_TAGS = {TAG + "str", TAG + "value"}  # a bare "=" is a special value, but a string as a key


def key_of(key_node: Node, constructor: SafeConstructor | None = None) -> Any:
    """Return the value of a key."""
    inner = key_node.yaml
    if inner.tag in _STRING_KEY_TAGS and isinstance(inner, yaml.ScalarNode):
        return inner.value
    return (constructor or SafeConstructor()).construct_object(inner, deep=True)


def is_merge(key_node: Node) -> bool:
    """Return whether a key is `<<`."""
    return bool(key_node.yaml.tag == TAG + "merge")


def collect_spans(node: Node, path: KeyPath, shared: bool, spans: dict[KeyPath, Span]) -> None:
    """Add the spans of everything below a node. For an alias or merge, spans point at where the value is written."""
    if node.target is not None:
        node, shared = node.target, True
    if node.yaml.tag == TAG + "seq":
        for index, item in enumerate(node.items):
            here = (*path, index)
            spans[here] = _span(item, item, shared, keyless=True)
            collect_spans(item, here, shared, spans)
    elif node.yaml.tag == TAG + "map":
        for key, (key_node, value, merged) in flatten(node).items():
            if isinstance(key, str) or type(key) is int:
                here = (*path, key)
                spans[here] = _span(key_node, value, shared or merged)
                collect_spans(value, here, shared or merged, spans)


def _span(key: Node, value: Node, shared: bool, *, keyless: bool = False) -> Span:
    return Span(
        key_start=value.start if keyless else key.start,
        key_end=value.start if keyless else key.end,
        value_start=value.start,
        value_end=value.end,
        shared=shared or value.kind == "alias",
    )


def flatten(mapping: Node) -> dict[Any, tuple[Node, Node, bool]]:
    """Return key → (key node, value node, whether merged by `<<`), in the order of the constructed dict."""
    merged: dict[Any, tuple[Node, Node, bool]] = {}
    own: dict[Any, tuple[Node, Node, bool]] = {}
    for key_node, value in mapping.pairs:
        if is_merge(key_node):
            source = value.target or value
            # PyYAML's order: the first of a list of mappings wins, and the last of several `<<`.
            for part in reversed(source.items) if source.kind == "sequence" else [source]:
                for key, (inner_key, inner_value, _) in flatten(part.target or part).items():
                    merged[key] = (inner_key, inner_value, True)
        else:
            own[key_of(key_node)] = (key_node, value, False)
    return merged | own
