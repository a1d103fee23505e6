"""`predict` and `fit` as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vramwise.allocator.settings import parse_settings
from vramwise.api.sources import Source, source_of
from vramwise.errors import InternalError, VramwiseError, describe_internal_error
from vramwise.options import FitOptions, Options, PredictOptions
from vramwise.recordings.snapshot import write_snapshot
from vramwise.variants.prediction import Prediction
from vramwise.variants.search.result import Fit
from vramwise.verbs.fit import fit_source
from vramwise.verbs.predict import opened


def predict(
    source: Source, options: Options | None = None, ask: PredictOptions | None = None, *, changes: Sequence[str] = ()
) -> Prediction:
    """What the run will allocate and reserve; `changes` are key=value words, or versions, applied to it first."""
    ask = ask or PredictOptions()
    try:
        subject = opened(source_of(source), options or Options(), ask, changes)
        return subject.prediction(steps=ask.steps, limit_bytes=ask.limit_bytes)
    except VramwiseError:
        raise
    except Exception as error:
        raise InternalError(describe_internal_error("the prediction", error)) from error


def fit(
    source: Source,
    options: Options | None = None,
    ask: FitOptions | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """The fastest variant of a config that fits its card, and what else would do; nothing is written.

    `progress` is told how many predictions were made, and of how many it takes about.
    """
    try:
        return fit_source(source_of(source), options or Options(), ask or FitOptions(), progress).fit
    except VramwiseError:
        raise
    except Exception as error:
        raise InternalError(describe_internal_error("the search", error)) from error


def snapshot_bytes(prediction: Prediction) -> bytes:
    """The predicted run in torch's snapshot form, for PyTorch's own viewer.

    On a card, or under a limit, it is the run there: where it does not fit, it ends with the request that failed.
    """
    run = prediction.run
    return write_snapshot(
        prediction.timeline,
        parse_settings(run.allocator.settings, run.target.torch),
        torch=run.target.torch,
        limit_bytes=prediction.capacity_bytes,
    )
