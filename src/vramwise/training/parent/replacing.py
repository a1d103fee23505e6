"""Refuses to train if that would replace files that this run did not write, whatever engine trains.

Everything that a run writes has a known name (`written_names`), and what earlier runs wrote is known too (`own_files`).
Other files belong to the user: they are named, and only `--force` continues. The weights that the run itself starts
from are never replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.parent.own_files import CHECKPOINTS, WEIGHTS, entries, files_of, folders_of, matches, own_files
from vramwise.training.plan import TrainPlan
from vramwise.types import RunSpec

# Keys of all trainers that name a folder of weights to read.
_MODELS = (
    *("base_model", "model_name_or_path", "base_model_config", "lora_model_dir", "adapter_name_or_path"),
    *("adapter_folder", "ref_model", "ref_model_adapters", "reward_model", "reward_model_adapters"),
    *("reward_model_name_or_path", "reward_funcs", "teacher_model_name_or_path"),
)
_MOST_NAMED = 3


def replaced_files(run: RunSpec, plan: TrainPlan) -> list[str]:
    """Return files and folders in output_dir that the run would replace and that no earlier run wrote.

    Raises VramwiseError if weights that the run starts from are among them.
    """
    patterns = files_of(plan.engine, adapter=run.adapter.kind is not None, custom_code=plan.trust_remote_code)
    folders = folders_of(plan.engine, resumes=plan.resume_from is not None)
    output = Path(plan.output_dir)
    read = dict(_models(run, plan))
    _refuse_models_in_checkpoints(output, plan, read)
    own, found = own_files(output), []
    for name, stamp in sorted(entries(output).items()):
        if not matches(name, folders if (output / name).is_dir() else patterns):
            continue
        key = _read_by(output / name, read)
        if key is not None and matches(name, WEIGHTS):
            raise VramwiseError(
                f"{output / name} belongs to the weights that {key} names, and this run would replace it: set another "
                "output_dir (--force does not replace weights that are trained from)"
            )
        if key is not None or not own.wrote(name, stamp):
            found.append(name)
    return found


def refuse_replacing(run: RunSpec, plan: TrainPlan) -> str:
    """Raise VramwiseError if the run would replace other files; with `--force`, return a sentence naming them."""
    found = replaced_files(run, plan)
    if not found:
        return ""
    more = len(found) - _MOST_NAMED
    names = ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    if plan.force:
        return f"--force: replacing {names} in {plan.output_dir}, which this run did not write"
    what = "it" if len(found) == 1 else f"these {len(found)}"
    raise VramwiseError(
        f"{plan.output_dir} holds {names}, which this run did not write and would replace: set another output_dir, "
        f"move {what} away, or replace {what} with --force"
    )


def _models(run: RunSpec, plan: TrainPlan) -> Iterator[tuple[Path, str]]:
    """Yield every local folder that the config names for weights to read, with its key."""
    values = run.config.document.values
    for key in _MODELS:
        for name in _names(values.get(key)):
            for start in (Path(), Path(plan.config_path).parent):
                folder = _folder(start, name)
                if folder is not None:
                    yield folder, key
                    break


def _names(value: Any) -> list[str]:
    """Return one name, several separated by commas (LLaMA-Factory), or a list."""
    values = value if isinstance(value, list) else [value]
    texts = [text for text in values if isinstance(text, str) and text]
    return [*texts, *(part.strip() for text in texts if "," in text for part in text.split(",") if part.strip())]


def _folder(start: Path, name: str) -> Path | None:
    try:
        path = start / Path(name).expanduser()
        return path if path.is_dir() else path.parent if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL inside, no home folder: not a path
        return None


def _read_by(path: Path, read: Mapping[Path, str]) -> str | None:
    """Return the key whose folder contains this file, even through a link or another spelling; or None."""
    for folder, key in read.items():
        try:
            ours = path.stat()
            with os.scandir(folder) as listed:
                if any(os.path.samestat(entry.stat(), ours) for entry in listed if _may_be(entry, ours)):
                    return key
        except OSError:
            continue
    return None


def _may_be(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    return entry.is_symlink() or entry.inode() == status.st_ino


def _refuse_models_in_checkpoints(output: Path, plan: TrainPlan, read: Mapping[Path, str]) -> None:
    """Raise VramwiseError if weights to read are in a checkpoint that another trainer may replace or delete."""
    if plan.engine == "transformers":
        return
    for folder, key in read.items():
        inside = Path(os.path.realpath(folder))
        root = Path(os.path.realpath(output))
        if root in inside.parents and matches(inside.relative_to(root).parts[0], (CHECKPOINTS,)):
            raise VramwiseError(
                f"{key} is {folder}, a checkpoint in output_dir, which this run may replace or delete: set another "
                "output_dir (--force does not replace weights that are trained from)"
            )
