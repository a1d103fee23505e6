"""`--what-if key=value`: a config with some values changed, in memory only."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.documents.document import parse_value
from vramwise.documents.edit import apply_edits
from vramwise.errors import ConfigError, VramwiseError
from vramwise.types import Document, Edit


def with_changes(document: Document, changes: Sequence[str]) -> Document:
    """Return the document with the changes applied. Values are read as YAML; `key=` removes the key.

    Raises VramwiseError for a change that is not `key=value` or cannot be applied.
    """
    edits = [_edit(change) for change in changes]
    return apply_edits(document, edits)


def _edit(change: str) -> Edit:
    key, equals, text = change.partition("=")
    key = key.strip()
    if not equals or not key:
        raise VramwiseError(f"--what-if {change}: expected key=value, e.g. micro_batch_size=1")
    if not text.strip():
        return Edit(op="delete", key=key)
    try:
        value = parse_value(text)
    except ConfigError as error:
        raise VramwiseError(f"--what-if {change[:80]}: {error.message}") from error
    return Edit(op="insert", key=key, value=value)
