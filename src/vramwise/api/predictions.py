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
    """Predict what the run will allocate and reserve. `changes` (key=value, or package==version) are applied first."""
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
    """Find the fastest variant of a config that fits its card, and alternatives. Nothing is written.

    `progress` is called with the number of predictions made and the approximate total.
    """
    try:
        return fit_source(source_of(source), options or Options(), ask or FitOptions(), progress).fit
    except VramwiseError:
        raise
    except Exception as error:
        raise InternalError(describe_internal_error("the search", error)) from error


def snapshot_bytes(prediction: Prediction) -> bytes:
    """Return the predicted run as a torch memory snapshot, for PyTorch's viewer.

    With a card or a limit, a run that does not fit ends with the request that failed.
    """
    run = prediction.run
    return write_snapshot(
        prediction.timeline,
        parse_settings(run.allocator.settings, run.target.torch),
        torch=run.target.torch,
        limit_bytes=prediction.capacity_bytes,
    )
