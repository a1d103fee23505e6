"""One function a verb: what the command line and other programs call. Glue only; rooms are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vramwise.errors import ConfigError, VramwiseError
from vramwise.resolving import Options, read_run, resolve

if TYPE_CHECKING:
    from vramwise.batching import Lengths
    from vramwise.checking import FileReport, FixReport
    from vramwise.diagnosis.evidence import Diagnosis
    from vramwise.predicting import Prediction
    from vramwise.recordings.replay import ReplayResult
    from vramwise.rules.base import Rule
    from vramwise.training.parent.prepare import TrainOptions as TrainOptions
    from vramwise.types import RunSpec

__all__ = [
    "Options",
    "PredictOptions",
    "check",
    "diagnose",
    "explain",
    "fix",
    "predict",
    "replay",
    "rules",
    "snapshot_bytes",
    "train",
]

PathLike = str | Path
_LENGTHS_LIMIT_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """What to predict: whose semantics, which model, which data, how long, under which limit."""

    engine: str = "axolotl"
    model: str | None = None
    online: bool = False
    steps: int | None = None
    lengths: str | None = None
    eval_lengths: str | None = None
    limit_bytes: int | None = None


def check(paths: PathLike | Sequence[PathLike], options: Options | None = None) -> list[FileReport]:
    """Judge every config under the paths ("-" is standard input, a folder means every YAML file in it)."""
    from vramwise import checking

    return list(checking.check(_names(paths), options))


def fix(
    paths: PathLike | Sequence[PathLike], options: Options | None = None, *, unsafe: bool = False, write: bool = True
) -> list[FixReport]:
    """Mend every config under the paths; `write=False` leaves the files alone."""
    from vramwise import checking

    return list(checking.fix(_names(paths), options, unsafe=unsafe, write=write))


def _names(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """One path may be given as itself: the letters of a text are no paths."""
    several = [paths] if isinstance(paths, str | Path) else paths
    return [str(path) for path in several]


def rules() -> tuple[Rule, ...]:
    """All rules, in reading order."""
    from vramwise.trainers.rulebook import ALL_RULES

    return ALL_RULES


def explain(rule_id: str) -> Rule:
    """One rule with its documentation and examples."""
    from vramwise.rules.selection import find_rule
    from vramwise.trainers.rulebook import ALL_RULES

    return find_rule(ALL_RULES, rule_id)


def predict(
    path: PathLike, options: Options | None = None, ask: PredictOptions | None = None, *, changes: Sequence[str] = ()
) -> Prediction:
    """What the run will allocate and reserve; `changes` are key=value words applied to the config first."""
    from vramwise.facts.models import find_model
    from vramwise.predicting import ENGINES, predict_run

    path, ask = str(path), ask or PredictOptions()
    if ask.engine not in ENGINES:
        raise VramwiseError(f"engine '{ask.engine}' is neither {' nor '.join(ENGINES)}")
    document, run = read_run(path, options or Options())
    if wrong := _wrong_type(run):
        raise wrong
    if changes:
        from vramwise.documents.change import with_changes

        run = resolve(with_changes(document, changes), run.target)
        if wrong := _wrong_type(run):
            raise VramwiseError(f"--what-if: {wrong.message}")
    name = ask.model or run.base_model
    if name is None:
        raise VramwiseError(f"{path} names no base_model: add one, or use --model with a hub id or a config.json")
    folder = Path() if path == "-" else Path(path).parent
    return predict_run(
        run,
        find_model(name, base_dir=folder, online=ask.online),
        engine=ask.engine,
        lengths=_lengths(ask.lengths),
        eval_lengths=_lengths(ask.eval_lengths),
        steps=ask.steps,
        limit_bytes=ask.limit_bytes,
    )


def _wrong_type(run: RunSpec) -> ConfigError | None:
    """Resolving leaves out values of a wrong type; predicting without them would describe another run."""
    from vramwise.facts.axolotl import type_errors

    for key, sentence in type_errors(run.config.document.values):
        place = run.config.place(key)
        line, column = (place.line, place.column) if place else (None, None)
        return ConfigError(sentence, line=line, column=column, path=run.config.document.path)
    return None


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


def _lengths(name: str | None) -> Lengths | None:
    if name is None:
        return None
    from vramwise.batching import parse_lengths

    try:
        with Path(name).open("rb") as file:
            data = file.read(_LENGTHS_LIMIT_BYTES + 1)
    except OSError as error:
        raise VramwiseError(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > _LENGTHS_LIMIT_BYTES:
        raise VramwiseError(
            f"{name} is larger than {_LENGTHS_LIMIT_BYTES // 1024**2} MiB: give the lengths, one a line"
        )
    return parse_lengths(data.decode("utf-8", "replace"), name)


def snapshot_bytes(prediction: Prediction) -> bytes:
    """The predicted run in torch's snapshot form, for PyTorch's own viewer."""
    from vramwise.allocator.settings import parse_settings
    from vramwise.recordings.snapshot import write_snapshot

    run = prediction.run
    return write_snapshot(prediction.timeline, parse_settings(run.allocator, run.target.torch), torch=run.target.torch)
