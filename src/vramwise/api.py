"""One function a verb: what the command line and other programs call. Glue only; rooms are imported on use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vramwise.errors import VramwiseError
from vramwise.resolving import Options, read_run, resolve

if TYPE_CHECKING:
    from vramwise.batching import Lengths
    from vramwise.checking import FileReport, FixReport
    from vramwise.predicting import Prediction
    from vramwise.rules.base import Rule

__all__ = ["Options", "PredictOptions", "check", "explain", "fix", "predict", "snapshot_bytes"]

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


def check(paths: Sequence[str], options: Options | None = None) -> Iterator[FileReport]:
    """Judge every config under the paths ("-" is standard input, a folder means every YAML file in it)."""
    from vramwise import checking

    return checking.check(paths, options)


def fix(
    paths: Sequence[str], options: Options | None = None, *, unsafe: bool = False, write: bool = True
) -> Iterator[FixReport]:
    """Mend every config under the paths; `write=False` leaves the files alone."""
    from vramwise import checking

    return checking.fix(paths, options, unsafe=unsafe, write=write)


def explain(rule_id: str) -> Rule:
    """One rule with its documentation and examples."""
    from vramwise.rules import RULES
    from vramwise.rules.selection import find_rule

    return find_rule(RULES, rule_id)


def predict(
    path: str, options: Options | None = None, ask: PredictOptions | None = None, *, changes: Sequence[str] = ()
) -> Prediction:
    """What the run will allocate and reserve; `changes` are key=value words applied to the config first."""
    from vramwise.facts.models import find_model
    from vramwise.predicting import predict_run

    ask = ask or PredictOptions()
    document, run = read_run(path, options or Options())
    if changes:
        from vramwise.config.change import with_changes

        run = resolve(with_changes(document, changes), run.target)
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
    from vramwise.allocator.snapshot import write_snapshot

    run = prediction.run
    return write_snapshot(prediction.timeline, parse_settings(run.allocator, run.target.torch), torch=run.target.torch)
