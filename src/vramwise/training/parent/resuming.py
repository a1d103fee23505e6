"""Decides where a run resumes: which checkpoint, of which run, and whether its settings are the same.

Decisions are returned for the user to see; what must not happen unasked raises VramwiseError.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import faults, is_complete, latest_whole, read_marker, sentence
from vramwise.training.parent import foreign
from vramwise.training.parent.folder_lock import wait_for_worker
from vramwise.training.plan import Decision
from vramwise.types import RunSpec

DATA = "data"  # compared by the worker, which reads the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was requested. `named`: a checkpoint's folder; `named_by`: the option or key that names it."""

    named: str | None
    named_by: str
    last: bool  # the last one in output_dir
    hosted: bool  # another trainer trains and writes the checkpoints
    force: bool
    fresh: bool = False  # from the beginning, whatever exists


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The checkpoint to start from (None: the beginning), the run, and the decisions to show."""

    checkpoint: str | None
    run: str
    decisions: Sequence[Decision] = ()


def decide_start(wanted: Wanted, output_dir: str, settings: Mapping[str, str]) -> Start:
    """Return the checkpoint to resume from: undamaged, and of a run with the same settings.

    Raises VramwiseError if settings differ without `force`, or if it is unclear whether to resume.
    """
    wait_for_worker(output_dir)
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
    if latest.folder is None:  # with other settings: the error names them
        latest = latest_whole(output_dir)
    why = "; ".join(latest.passed_over)
    if latest.folder is None:
        return None, [_from_the_start(why or "output_dir holds no complete checkpoint")]
    return latest.folder, [Decision(name="resume", value=Path(latest.folder).name, why=why)] if why else []


def _ask_which(wanted: Wanted, output_dir: str) -> None:
    """Raise VramwiseError if there is a checkpoint to resume and the user did not ask to start from scratch."""
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
    """Return a decision about checkpoints of another trainer: they stay, and one may be resumed."""
    if wanted.hosted:  # they belong to that trainer
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
    """Return the settings that affect the result, by their config names."""
    values = {
        "base_model": Path(run.base_model or "").name,  # the same model may be in another folder
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
    """Return `seed 1 (now 42)` for each setting that both have and that differs."""
    if before.get("adapter") != now.get("adapter"):  # its details add nothing
        before = {name: value for name, value in before.items() if not name.startswith("lora_")}
    return [f"{name} {before[name]} (now {now[name]})" for name in now if name in before and before[name] != now[name]]


def mixing(checkpoint: str, other: Sequence[str]) -> str:
    """Return why a checkpoint is not resumed."""
    return (
        f"{checkpoint} was trained with {', '.join(other)}: going on would mix two runs; put it back, leave out "
        "--resume, or go on anyway with --force"
    )


def check_same_data(checkpoint: str | None, digest: str, *, force: bool) -> None:
    """In the worker: raise VramwiseError if the samples differ from the checkpoint's, unless forced."""
    marker = None if checkpoint is None else read_marker(checkpoint)
    if checkpoint is None or marker is None or force or marker.settings.get(DATA, digest) == digest:
        return
    raise VramwiseError(mixing(checkpoint, ["other data (the samples, as tokens, are not those of now)"]))
