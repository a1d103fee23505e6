"""Where a run goes on: which checkpoint, of which run, and whether it was trained with the same settings.

What was decided comes back as decisions for the user to see; what must not happen unasked raises one sentence.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import is_complete, latest_whole
from vramwise.training.marker import faults, read_marker, sentence
from vramwise.training.parent import foreign
from vramwise.training.plan import Decision
from vramwise.types import RunSpec

DATA = "data"  # compared by the worker, which reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for. `named`: a checkpoint by its folder, and `named_by` the option or key that did."""

    named: str | None
    named_by: str
    last: bool  # the last one in output_dir
    hosted: bool  # another trainer trains, and writes the checkpoints
    force: bool
    fresh: bool = False  # from the beginning, whatever is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """From which checkpoint (None: the beginning), as which run, and what there is to say about it."""

    checkpoint: str | None
    run: str
    decisions: Sequence[Decision] = ()


def decide_start(wanted: Wanted, output_dir: str, settings: Mapping[str, str]) -> Start:
    """The checkpoint to go on from, whole and of a run with the same settings."""
    checkpoint, decisions = _checkpoint(wanted, output_dir, settings)
    marker = None if checkpoint is None else read_marker(checkpoint)
    if marker is not None and checkpoint is not None:
        other = differences(marker.settings, settings)
        if other and not wanted.force:
            raise VramwiseError(mixing(checkpoint, other))
        if other:
            decisions.append(Decision(name="resume", value="forced", why="other settings: " + "; ".join(other)))
    decisions += _said_of_others(output_dir, wanted)
    same = marker is not None and marker.run and checkpoint is not None and Path(checkpoint).parent == Path(output_dir)
    return Start(checkpoint=checkpoint, run=marker.run if same and marker else uuid.uuid4().hex, decisions=decisions)


def _checkpoint(wanted: Wanted, output_dir: str, settings: Mapping[str, str]) -> tuple[str | None, list[Decision]]:
    if wanted.named is not None:
        return _named(wanted.named, wanted), []
    if not wanted.last:
        _ask_which(wanted, output_dir)
        return None, []
    if wanted.hosted:
        found = foreign.latest_of_trainer(output_dir)
        return found, [] if found else [_from_the_start("output_dir holds no complete checkpoint")]
    latest = latest_whole(output_dir, lambda marker: not differences(marker.settings, settings))
    if latest.folder is None:  # of other settings: the error names them
        latest = latest_whole(output_dir)
    why = "; ".join(latest.passed_over)
    if latest.folder is None:
        return None, [_from_the_start(why or "output_dir holds no complete checkpoint")]
    return latest.folder, [Decision(name="resume", value=Path(latest.folder).name, why=why)] if why else []


def _ask_which(wanted: Wanted, output_dir: str) -> None:
    """Beside a checkpoint that could be gone on from, beginning anew must be somebody's decision."""
    found = foreign.latest_of_trainer(output_dir) if wanted.hosted else latest_whole(output_dir).folder
    if found is not None and not wanted.fresh:
        raise VramwiseError(
            f"{found} is a complete checkpoint of an earlier run: go on from it with --resume, or begin anew beside it "
            "with --fresh"
        )


def _from_the_start(why: str) -> Decision:
    return Decision(name="resume", value="from the start", why=why)


def _named(name: str, wanted: Wanted) -> str:
    folder = Path(name)
    if not folder.is_dir():
        raise VramwiseError(f"{wanted.named_by}: {name} is not a folder")
    if is_complete(folder):
        found = faults(folder)
        if found:
            raise VramwiseError(f"{wanted.named_by}: {sentence(folder, found)}; name another, or use --resume")
    elif not wanted.hosted:
        foreign.require_usable(folder)
    return str(folder.absolute())


def _said_of_others(output_dir: str, wanted: Wanted) -> list[Decision]:
    """Checkpoints of another trainer in the folder: they stay, and one of them may be gone on from."""
    if wanted.hosted:  # they are that trainer's own
        return []
    others = foreign.of_others(output_dir)
    if not others:
        return []
    names = ", ".join(folder.name for folder in others[-3:])
    why = "not written by vramwise train: they stay as they are"
    found = foreign.usable(output_dir) if wanted.named is None else None
    if found is not None:
        why += f"; to go on from one: --resume-from {found}"
    return [
        Decision(name="other checkpoints", value=f"{len(others)}: {'… ' if len(others) > 3 else ''}{names}", why=why)
    ]


def settings_of(run: RunSpec, seed: int) -> dict[str, str]:
    """What decides the result, by the names a config has for it."""
    values = {
        "base_model": Path(run.base_model or "").name,  # the same model may lie elsewhere
        "seed": seed,
        "sequence_len": run.shapes.sequence_len,
        "sample_packing": run.shapes.sample_packing,
        "effective batch": run.batch.effective_batch_size,
        "learning_rate": float(run.config.get("learning_rate", 5e-5)),
        "optimizer": run.optimizer.name,
        "adapter": run.adapter.kind or "none",
    }
    if run.adapter.kind is not None:
        values |= {"lora_r": run.adapter.lora_r, "lora_alpha": run.adapter.lora_alpha}
    return {name: str(value) for name, value in values.items()}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """`seed 1 (now 42)` for each setting that both know and that differs."""
    if before.get("adapter") != now.get("adapter"):  # its details say nothing more
        before = {name: value for name, value in before.items() if not name.startswith("lora_")}
    return [f"{name} {before[name]} (now {now[name]})" for name in now if name in before and before[name] != now[name]]


def mixing(checkpoint: str, other: Sequence[str]) -> str:
    """Why a checkpoint is not gone on from."""
    return (
        f"{checkpoint} was trained with {', '.join(other)}: going on would mix two runs; put it back, leave out "
        "--resume, or go on anyway with --force"
    )


def check_same_data(checkpoint: str | None, digest: str, *, force: bool) -> None:
    """In the worker, when the samples are read: refuse to go on with others than the checkpoint's, unless forced."""
    marker = None if checkpoint is None else read_marker(checkpoint)
    if checkpoint is None or marker is None or force or marker.settings.get(DATA, digest) == digest:
        return
    raise VramwiseError(mixing(checkpoint, ["other data (the samples, as tokens, are not those of now)"]))
