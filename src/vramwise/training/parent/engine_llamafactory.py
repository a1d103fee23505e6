"""`--engine llamafactory`: runs the installed `llamafactory-cli train FILE` in a child, with our guard.

One process, or torchrun where its command would start it: for several cards, and for DeepSpeed. The script is
`hosted/start.py`, run by LLaMA-Factory's Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.training.hosted.entries import SCRIPT
from vramwise.training.parent.extras import python_of, trainer_command
from vramwise.training.parent.handed_over import arguments_of, config_of, hand_over
from vramwise.training.parent.launch import launched_from_outside, torchrun
from vramwise.training.plan import TrainPlan
from vramwise.types import Document, Edit, RunSpec

_WITHOUT_RESUMING = ("rm", "ppo")
CONFIG_FILE = "llamafactory.yml"
_PATHS = ("model_name_or_path", "adapter_name_or_path", "dataset_dir", "deepspeed", "fsdp_config", "ref_model")


def llamafactory_attempt(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command of one attempt; its config is written beside the other records."""
    document = config_of(plan)
    edits = [*arguments_of(document, plan, _PATHS), *_start(document, plan)]
    file = str(hand_over(plan, CONFIG_FILE, document, edits))
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
