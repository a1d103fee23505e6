"""`--engine axolotl`, `trl` and `llamafactory`: runs the installed trainer's own command in a child, with our guard.

The config is passed in a copy beside the other records of the run, with what was decided before the start (dtype,
checkpoint, paths) or after an out-of-memory (batches). The user's file is not changed. Trainers look only in the
working folder, so the copy uses absolute paths for files beside the config.

- Axolotl gets the guard as a plugin.
- TRL's own command decides the arguments of `accelerate launch`; the script that it starts is `hosted/start.py`, run by
  TRL's Python.
- LLaMA-Factory's script is `hosted/start.py` too: in one process, or by torchrun where its command would start it: for
  several cards, and for DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vramwise.allocator.variables import VARIABLES
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.models.known import local_config
from vramwise.trainers.trl.kind import kind_name
from vramwise.trainers.trl.resolve.allocator import allocator_variables
from vramwise.training.hosted.entries import SCRIPT
from vramwise.training.parent.extras import python_of, trainer_command
from vramwise.training.parent.launch import (
    accelerate_options,
    find_nodes,
    launched_from_outside,
    torchrun,
    torchrun_options,
)
from vramwise.training.plan import PLAN_FILE, TrainPlan
from vramwise.types import Document, Edit, RunSpec
from vramwise.whole_files import write_new


def config_of(plan: TrainPlan) -> Document:
    """Return the user's config as it was when the run began."""
    return parse_document(plan.config_path, plan.config_text.encode("utf-8"))


def hand_over(plan: TrainPlan, name: str, document: Document, edits: Iterable[Edit]) -> Path:
    """Write the copy and return its path."""
    text = apply_edits(document, list(edits)).text
    path = Path(plan.output_dir) / name
    write_new(path, text.encode("utf-8"), make_folder=True)
    return path


def only_beside(path: Any, beside: Path) -> bool:
    """Return whether a path exists relative to the config's folder but not relative to the working folder."""
    return isinstance(path, str) and bool(path) and not Path(path).exists() and (beside / path).exists()


def arguments_of(document: Document, plan: TrainPlan, paths: Iterable[str]) -> Iterator[Edit]:
    """Yield edits of TrainingArguments' keys for this attempt; `paths`: keys that hold a path."""
    beside = Path(document.path).parent.absolute()
    for key in paths:
        value = document.values.get(key)
        if only_beside(value, beside):
            yield Edit(op="set", key=key, value=str(beside / str(value)))
    if not document.values.get("output_dir"):
        yield Edit(op="insert", key="output_dir", value=plan.output_dir)
    if plan.attempt > 1:
        yield Edit(op="insert", key="per_device_train_batch_size", value=plan.micro_batch_size)
        yield Edit(op="insert", key="gradient_accumulation_steps", value=plan.gradient_accumulation_steps)
        if document.values.get("auto_find_batch_size"):  # it would use the checkpoint's batch again
            yield Edit(op="set", key="auto_find_batch_size", value=False)
        if plan.eval_batch_size is not None:
            yield Edit(op="insert", key="per_device_eval_batch_size", value=plan.eval_batch_size)
    if plan.resume_from is not None:
        yield Edit(op="insert", key="resume_from_checkpoint", value=plan.resume_from)
    else:  # whether to resume was decided before the start
        yield Edit(op="delete", key="resume_from_checkpoint")


GUARD_PLUGIN = "vramwise.integrations.axolotl.MemoryGuardPlugin"
_AXOLOTL_FILE = "axolotl.yml"
PLAN_VARIABLE = "VRAMWISE_PLAN"


def axolotl_attempt(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command of one attempt; its config is written beside the other records.

    Axolotl's command starts a process for each card. On several nodes it uses torchrun. If an outer launcher started
    this process as one of several, it starts none.
    """
    words = [trainer_command("axolotl"), "train", str(write_config(plan))]
    if launched_from_outside(env):
        return [*words, "--launcher", "python"]
    nodes = find_nodes(env)
    if nodes.count == 1:
        return words
    return [*words, "--launcher", "torchrun", "--", *torchrun_options(plan.gpus, nodes)]


def guard_environment(output_dir: str) -> dict[str, str]:
    """Return the variable that tells the guard inside Axolotl which plan it watches."""
    return {PLAN_VARIABLE: str(Path(output_dir) / PLAN_FILE)}


def write_config(plan: TrainPlan) -> Path:
    """Write the user's config with the guard and the plan's decisions; the user's own file is not changed."""
    document = config_of(plan)
    edits = [*_guard(document), *_dtype(document, plan), *_axolotl_paths(document), *_batches(plan)]
    if plan.resume_from is not None:
        edits.append(Edit(op="insert", key="resume_from_checkpoint", value=plan.resume_from))
    return hand_over(plan, _AXOLOTL_FILE, document, edits)


def _guard(document: Document) -> Iterator[Edit]:
    plugins = [str(name) for name in document.values.get("plugins") or ()]
    if GUARD_PLUGIN not in plugins:
        yield Edit(op="insert", key="plugins", value=[*plugins, GUARD_PLUGIN])


def _dtype(document: Document, plan: TrainPlan) -> Iterator[Edit]:
    """Yield `bf16: auto` as decided: Axolotl would use emulated bf16, and fp16 without a GPU."""
    values = document.values
    if values.get("bf16", "auto") != "auto" or values.get("fp16") or plan.precision == "fp8":
        return
    yield Edit(op="insert", key="bf16", value=plan.precision == "bf16")
    if plan.precision == "fp16" and not values.get("float16"):
        yield Edit(op="insert", key="fp16", value=True)


def _batches(plan: TrainPlan) -> Iterator[Edit]:
    """Yield the batch sizes of a restart; the first attempt uses the config's own."""
    if plan.attempt == 1:
        return
    batches = {
        "micro_batch_size": plan.micro_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "eval_batch_size": plan.eval_batch_size,
    }
    for key, value in batches.items():
        if value is not None:
            yield Edit(op="set", key=key, value=value)
    yield Edit(op="delete", key="batch_size")  # Axolotl accepts either micro-batch and accumulation, or this


def _axolotl_paths(document: Document) -> Iterator[Edit]:
    """Yield absolute paths for files beside the config, because Axolotl looks only in the working folder."""
    beside = Path(document.path).parent
    model = document.values.get("base_model")
    if isinstance(model, str):
        found = local_config(model, beside)
        if found is not None and not Path(model).expanduser().exists():
            yield Edit(op="set", key="base_model", value=str(found.parent))
    for name in ("datasets", "test_datasets"):
        for index, block in enumerate(document.values.get(name) or ()):
            path = block.get("path") if isinstance(block, dict) else None
            if only_beside(path, beside):
                yield Edit(op="set", key=f"{name}.{index}.path", value=str(beside / str(path)))


_TRL_FILE = "trl.yml"
_KINDS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
_TRL_PATHS = ("model_name_or_path", "dataset_name", "deepspeed", "fsdp_config", "accelerate_config", "config_file")


def trl_attempt(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command of one attempt; its config is written beside the other records."""
    document = config_of(plan)
    edits = [*arguments_of(document, plan, _TRL_PATHS), *_generations(document, plan), *_environment(document, plan)]
    file = str(hand_over(plan, _TRL_FILE, document, edits))
    entry = "trl-rank" if launched_from_outside(env) else "trl"  # otherwise accelerate starts the ranks
    nodes = accelerate_options(plan.gpus, find_nodes(env)) if entry == "trl" else []
    return [python_of(trainer_command("trl")), SCRIPT, entry, plan_path, plan.kind, file, *nodes]


def kind_with_a_command(run: RunSpec) -> str:
    """Return the name of TRL's command for this training; raises VramwiseError if there is none."""
    kind = kind_name(run)
    if kind not in _KINDS:
        raise VramwiseError(f"TRL has no command for {kind}: it trains {', '.join(_KINDS)}")
    return kind


def in_env(run: RunSpec) -> Mapping[str, str]:
    """Return the allocator variables in a file's `env:`, which only TRL's files have."""
    return allocator_variables(run.config.document.values) if run.trainer == "trl" else {}


def _generations(document: Document, plan: TrainPlan) -> Iterator[Edit]:
    """Yield the edit that keeps the rows of a generation constant when the micro-batch changes."""
    steps = document.values.get("steps_per_generation")
    if plan.attempt > 1 and isinstance(steps, int):
        before = document.values.get("gradient_accumulation_steps", 1)
        yield Edit(op="set", key="steps_per_generation", value=steps * plan.gradient_accumulation_steps // before)


def _environment(document: Document, plan: TrainPlan) -> Iterator[Edit]:
    """Yield the edit that removes allocator variables from `env:` if they were decided otherwise."""
    block = document.values.get("env")
    if isinstance(block, dict) and any(name in plan.environment for name in VARIABLES):
        rest = {name: value for name, value in block.items() if name not in VARIABLES}
        if rest != block:
            yield Edit(op="set", key="env", value=rest)


_WITHOUT_RESUMING = ("rm", "ppo")
_LLAMAFACTORY_FILE = "llamafactory.yml"
_LLAMAFACTORY_PATHS = (
    "model_name_or_path",
    "adapter_name_or_path",
    "dataset_dir",
    "deepspeed",
    "fsdp_config",
    "ref_model",
)


def llamafactory_attempt(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command of one attempt; its config is written beside the other records."""
    document = config_of(plan)
    edits = [*arguments_of(document, plan, _LLAMAFACTORY_PATHS), *_start(document, plan)]
    file = str(hand_over(plan, _LLAMAFACTORY_FILE, document, edits))
    python = python_of(trainer_command("llamafactory"))
    script = [SCRIPT, "llamafactory", plan_path, file]
    if not _several(plan.gpus, document) or launched_from_outside(env):
        return [python, *script]
    return [*torchrun(python, plan.gpus, env), *script]


def torchrun_environment(run: RunSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what its command sets for torchrun besides the allocator, unless OPTIM_TORCH=0."""
    wanted = environ.get("OPTIM_TORCH", "1").lower() in ("true", "y", "1")
    return {"TORCH_NCCL_AVOID_RECORD_STREAMS": "1"} if wanted and _several(run.batch.gpus, run.config.document) else {}


def resumable(run: RunSpec) -> bool:
    """Return whether it can resume from a checkpoint: in some stages it drops one or needs the adapter separately."""
    return run.config.get("stage") not in _WITHOUT_RESUMING


def _several(gpus: int, document: Document) -> bool:
    """Return whether torchrun starts the processes."""
    return gpus > 1 or bool(document.values.get("deepspeed"))


def _start(document: Document, plan: TrainPlan) -> Iterator[Edit]:
    """Yield the edit that keeps LLaMA-Factory from resuming by itself: that was decided before the start."""
    if plan.resume_from is None and document.values.get("overwrite_output_dir") is not True:
        yield Edit(op="insert", key="overwrite_output_dir", value=True)
