"""Recognize exceptions that compare two dtypes, in any wording."""

from __future__ import annotations

import re

_ONE = re.compile(
    r"\b(?:c10::|at::|torch\.(?:cuda\.)?)?(Half|Float|BFloat16|Double|float16|bfloat16|float32|float64|float|double|half)"
    r"(?:Tensor)?\b"
)
_COMPARED = re.compile(r"\b(?:same|match|expected|expects?|requires)\b|!=", re.IGNORECASE)
_SAME_AS = {"half": "float16", "float": "float32", "double": "float64"}


def two_dtypes(text: str) -> dict[str, str]:
    """Return the two differing dtypes of an exception that compares dtypes; empty for any other.

    torch has dozens of such messages (index_add_, index_put_, attention masks, losses); all name both dtypes.
    """
    matches = reversed(list(_ONE.finditer(text[:600])))
    found = {_SAME_AS.get(name := match[1].lower(), name): match[0] for match in matches}
    if len(found) != 2 or not _COMPARED.search(text[:600]):
        return {}
    right, left = found.values()
    return {"left": left, "right": right}
