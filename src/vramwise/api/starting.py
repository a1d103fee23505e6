"""`new` as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.errors import InternalError, VramwiseError, describe_internal_error
from vramwise.options import NewOptions, Options
from vramwise.verbs import new as verb
from vramwise.verbs.starting.result import New


def new(
    model: str,
    options: Options | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **asked: Any,
) -> New:
    """Write a config for a model that is predicted to fit the card of `options`; no file is written.

    `asked`: further fields of NewOptions, such as `data`, `method` and `batch`. If nothing fits, `fits` is False.
    """
    try:
        return verb.new(NewOptions(model=model, **asked), options or Options(), progress)
    except (VramwiseError, TypeError):
        raise
    except Exception as error:
        raise InternalError(describe_internal_error("the search", error)) from error
