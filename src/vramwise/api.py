"""One function a verb: what the command line and other programs call. Glue only; rooms are imported on use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from vramwise.displayed import Several
from vramwise.errors import InternalError, VramwiseError, describe_internal_error
from vramwise.options import FitOptions, NewOptions, Options, PredictOptions, Text

if TYPE_CHECKING:
    from vramwise.diagnosis.evidence import Diagnosis
    from vramwise.recordings.replay import ReplayResult
    from vramwise.rules.base import Rule
    from vramwise.training.parent.prepare import TrainOptions as TrainOptions
    from vramwise.variants.prediction import Prediction
    from vramwise.variants.search.result import Fit
    from vramwise.verbs.check import FileReport
    from vramwise.verbs.fix import FixReport
    from vramwise.verbs.starting.result import New

__all__ = [
    "FitOptions",
    "NewOptions",
    "Options",
    "PredictOptions",
    "check",
    "diagnose",
    "explain",
    "fit",
    "fix",
    "new",
    "predict",
    "replay",
    "rules",
    "snapshot_bytes",
    "train",
]

PathLike = str | Path
# A path, a config's text (several lines), or its values.
Source = PathLike | Mapping[str, Any]


def check(paths: Source | Sequence[PathLike], options: Options | None = None) -> list[FileReport]:
    """Judge every config under the paths ("-" is standard input, a folder means every YAML file in it).

    A text of several lines or a mapping is judged as a config itself.
    """
    from vramwise.verbs import check as verb

    if isinstance(paths, Mapping | str):
        paths = _source(paths)
        if isinstance(paths, Mapping | Text):
            return Several([verb.check_source(paths, options or Options(), alone=True)])
    assert not isinstance(paths, Mapping)
    return Several(verb.check(_names(paths), options))


def fix(
    paths: Source | Sequence[PathLike],
    options: Options | None = None,
    *,
    unsafe: bool = False,
    write: bool = True,
    fits: bool = False,
) -> list[FixReport]:
    """Fix every config under the paths; `write=False` leaves the files alone; `fits`: then fit each to its card.

    A text of several lines or a mapping is fixed as a config itself: `after` holds the text.
    """
    from vramwise.verbs import fix as verb

    if isinstance(paths, Mapping | str):
        paths = _source(paths)
        if isinstance(paths, Mapping | Text):
            return Several([verb.fix_source(paths, options or Options(), unsafe=unsafe, fits=fits)])
    assert not isinstance(paths, Mapping)
    return Several(verb.fix(_names(paths), options, unsafe=unsafe, write=write, fits=fits))


def _source(source: Source) -> Source:
    """A text of several lines that names no file is the config itself."""
    is_text = isinstance(source, str) and "\n" in source and not os.path.lexists(source)
    return Text(source) if is_text else source


def _names(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """One path may be given as itself: the letters of a text are no paths."""
    several = [paths] if isinstance(paths, str | Path) else paths
    return [str(path) for path in several]


def rules() -> tuple[Rule, ...]:
    """All rules, in reading order."""
    from vramwise.trainers.rulebook import all_rules

    return all_rules()


def explain(rule_id: str) -> Rule:
    """One rule with its documentation and examples."""
    from vramwise.rules.selection import find_rule
    from vramwise.trainers.rulebook import all_rules

    return find_rule(all_rules(), rule_id)


def predict(
    source: Source, options: Options | None = None, ask: PredictOptions | None = None, *, changes: Sequence[str] = ()
) -> Prediction:
    """What the run will allocate and reserve; `changes` are key=value words, or versions, applied to it first."""
    from vramwise.verbs.predict import opened

    ask = ask or PredictOptions()
    try:
        subject = opened(_source(source), options or Options(), ask, changes)
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
    from vramwise.verbs.fit import fit_source

    try:
        return fit_source(_source(source), options or Options(), ask or FitOptions(), progress).fit
    except VramwiseError:
        raise
    except Exception as error:
        raise InternalError(describe_internal_error("the search", error)) from error


def new(
    model: str,
    options: Options | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **asked: Any,
) -> New:
    """A config for a model that is predicted to fit the card of `options`; nothing is written.

    `asked`: further fields of NewOptions, such as `data`, `method` and `batch`. Where nothing fits, `fits` is False.
    """
    from vramwise.verbs import new as verb

    try:
        return verb.new(NewOptions(model=model, **asked), options or Options(), progress)
    except (VramwiseError, TypeError):
        raise
    except Exception as error:
        raise InternalError(describe_internal_error("the search", error)) from error


def replay(
    path: PathLike,
    *,
    settings: str | None = None,
    torch: str | None = None,
    limit_bytes: int | None = None,
    device: int | None = None,
) -> ReplayResult:
    """Put a torch memory snapshot or a trace file through the simulated allocator, under its own settings or others."""
    from vramwise.facts.torch import parse_torch_version
    from vramwise.recordings import replay as allocator
    from vramwise.recordings.reader import read_recording

    version = None if torch is None else parse_torch_version(torch)
    recording = read_recording(path, device)
    return allocator.replay(recording, settings=settings, torch=version, limit_bytes=limit_bytes)


def diagnose(
    log: PathLike | BinaryIO | None = None,
    *,
    config: PathLike | None = None,
    snapshot: PathLike | None = None,
    options: Options | None = None,
    model: str | None = None,
) -> Diagnosis:
    """What ended a run, from its log (a path or a binary stream), its config and its memory snapshot."""
    if log is None and snapshot is None:
        raise VramwiseError("name a log or a snapshot: there is nothing to diagnose")
    from vramwise.diagnosis.reading import read_all

    names = [None if name is None else str(name) for name in (config, snapshot)]
    return read_all(log, config=names[0], snapshot=names[1], options=options, model=model).diagnosis


def train(path: PathLike, options: TrainOptions | None = None) -> int:
    """Check, predict, prepare and train one config; gives the exit code, 0 where it trained to the end."""
    from vramwise.training.parent.run import train

    return train(str(path), options)


def snapshot_bytes(prediction: Prediction) -> bytes:
    """The predicted run in torch's snapshot form, for PyTorch's own viewer.

    On a card, or under a limit, it is the run there: where it does not fit, it ends with the request that failed.
    """
    from vramwise.allocator.settings import parse_settings
    from vramwise.recordings.snapshot import write_snapshot

    run = prediction.run
    return write_snapshot(
        prediction.timeline,
        parse_settings(run.allocator.settings, run.target.torch),
        torch=run.target.torch,
        limit_bytes=prediction.capacity_bytes,
    )
