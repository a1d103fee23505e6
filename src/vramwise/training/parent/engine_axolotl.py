"""`--engine axolotl`: runs the installed `axolotl train` in a child, with the guard as a plugin.

The config is passed in a file beside the other records of the run: with the guard in its plugin list, and with what was
decided before the start (dtype, checkpoint, paths) or after an out-of-memory (batches).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vramwise.models.known import local_config
from vramwise.training.parent.extras import trainer_command
from vramwise.training.parent.handed_over import config_of, hand_over, only_beside
from vramwise.training.parent.launch import find_nodes, launched_from_outside, torchrun_options
from vramwise.training.plan import PLAN_FILE, TrainPlan
from vramwise.types import Document, Edit

GUARD_PLUGIN = "vramwise.integrations.axolotl.MemoryGuardPlugin"
CONFIG_FILE = "axolotl.yml"
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
    edits = [*_guard(document), *_dtype(document, plan), *_paths(document), *_batches(plan)]
    if plan.resume_from is not None:
        edits.append(Edit(op="insert", key="resume_from_checkpoint", value=plan.resume_from))
    return hand_over(plan, CONFIG_FILE, document, edits)


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


def _paths(document: Document) -> Iterator[Edit]:
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
