"""The number of parameters of a base model, as a text states or prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vramwise.limits import parse_json
from vramwise.limits.json_values import OverBudget
from vramwise.types import Document

# With separators: scripts that print plain digits count a 4-bit base as it is packed, about half as many.
_GROUPED = r"(\d{1,3}(?:[,_]\d{3}){2,4})(?![,_]?\d)"
# PEFT's `print_trainable_parameters` and LLaMA-Factory, then Unsloth: those of the adapter, and all.
_PRINTED = (
    re.compile(rf"trainable params: {_GROUPED} \|\| all params: {_GROUPED}"),
    re.compile(rf"Trainable parameters = {_GROUPED} of {_GROUPED}"),
)
_NAMES = r"(?:num_param(?:eter)?s|n_param(?:eter)?s|(?:total|number of|model)[ _]param(?:eter)?s)"
_STATED = re.compile(rf"\b{_NAMES}\b[\"']?\s{{0,3}}[:=]\s{{0,3}}(?:{_GROUPED}|(\d{{9,12}})(?![\d.]))", re.IGNORECASE)
_COMMENT = re.compile(r"#.*")


def base_parameters(text: str) -> int | None:
    """Return the number of parameters of the base model that a text states, without those of an adapter."""
    for pattern in _PRINTED:
        if printed := pattern.search(text):
            trained, together = map(_number, printed.groups())
            return together - trained if trained < together else together
    stated = _STATED.search(text)
    return None if stated is None else _number(stated[1] or stated[2])


def stated_in(document: Document) -> int | None:
    """Return the number that a document states, or that the outputs of a notebook show; comments in code are ignored.

    They may be about another model.
    """
    if document.script is None:
        return base_parameters(document.text)
    found = base_parameters(_COMMENT.sub("", document.text))
    if found is None and document.path.endswith(".ipynb"):
        return base_parameters("\n".join(_outputs(document.file_text)))
    return found


def _number(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def _outputs(raw: str) -> Iterator[str]:
    """Yield the texts that the cells of a notebook printed."""
    try:
        cells: Any = parse_json(raw).get("cells")
    except (AttributeError, ValueError, OverBudget):
        return
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for one in outputs if isinstance(outputs, list) else ():
            text = one.get("text") if isinstance(one, dict) else None
            yield from [text] if isinstance(text, str) else ["".join(map(str, text))] if isinstance(text, list) else []
