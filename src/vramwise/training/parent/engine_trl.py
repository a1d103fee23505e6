"""`--engine trl`: runs the installed `trl KIND --config FILE` in a child, with our guard.

TRL's own command decides the arguments of `accelerate launch`; the script that it starts is `hosted/start.py`, run by
TRL's Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.allocator.variables import VARIABLES
from vramwise.errors import VramwiseError
from vramwise.trainers.trl.kind import kind_name
from vramwise.trainers.trl.resolve.allocator import allocator_variables
from vramwise.training.hosted.entries import SCRIPT
from vramwise.training.parent.extras import python_of, trainer_command
from vramwise.training.parent.handed_over import arguments_of, config_of, hand_over
from vramwise.training.parent.launch import accelerate_options, find_nodes, launched_from_outside
from vramwise.training.plan import TrainPlan
from vramwise.types import Document, Edit, RunSpec

CONFIG_FILE = "trl.yml"
_KINDS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
_PATHS = ("model_name_or_path", "dataset_name", "deepspeed", "fsdp_config", "accelerate_config", "config_file")


def trl_attempt(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command of one attempt; its config is written beside the other records."""
    document = config_of(plan)
    edits = [*arguments_of(document, plan, _PATHS), *_generations(document, plan), *_environment(document, plan)]
    file = str(hand_over(plan, CONFIG_FILE, document, edits))
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
