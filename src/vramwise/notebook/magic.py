"""`%vramwise` in a notebook: the answer for the trainer in its namespace, else for the cells that ran.

%load_ext vramwise
%vramwise                    # predict; also `%vramwise fit` and `%vramwise check`
%vramwise --gpu rtx-4090     # for another card than this machine's
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.render.outward import visible

_VERBS = ("predict", "fit", "check")


def add_to(ipython: Any) -> None:
    """Register the magic with an IPython shell."""

    def vramwise(line: str) -> Any:
        """Answer for the trainer of this notebook: `%vramwise [predict|fit|check] [--gpu CARD]`."""
        try:
            return answer(line, ipython.user_ns)
        except VramwiseError as error:
            sys.stderr.write(visible(f"vramwise: {error}") + "\n")
            return None

    ipython.register_magic_function(vramwise, "line", "vramwise")


def answer(line: str, namespace: dict[str, Any]) -> Any:
    """Return the result of a verb for a namespace. Raises VramwiseError for wrong words, or if nothing trains there."""
    from vramwise import api

    words = shlex.split(line)
    verb = words.pop(0) if words and not words[0].startswith("-") else "predict"
    card = None
    if words[:1] == ["--gpu"] and len(words) == 2:
        card, words = words[1], []
    if verb not in _VERBS or words:
        raise VramwiseError(f"%vramwise {line}: expected predict, fit or check, and --gpu CARD")
    source = trainer_in(namespace)
    return getattr(api, verb)(_cells(namespace) if source is None else source, gpu=card)


def trainer_in(namespace: dict[str, Any]) -> Any:
    """Return the trainer that was named last, or None; names that begin with an underscore are the shell's."""
    found = [value for name, value in namespace.items() if not name.startswith("_") and _is_trainer(value)]
    return found[-1] if found else None


def _is_trainer(value: Any) -> bool:
    names = {one.__name__ for one in type(value).__mro__}
    return "Trainer" in names and all(name in vars(value) for name in ("model", "args"))


def _cells(namespace: dict[str, Any]) -> str:
    """Return the cells that ran as a notebook."""
    ran = [str(one) for one in namespace.get("In", ()) if str(one).strip()]
    if not ran:
        raise VramwiseError("no cell ran yet, and there is no trainer here")
    cells = [{"cell_type": "code", "source": [text], "metadata": {}, "outputs": []} for text in ran]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}, indent=1)
