"""`--engine axolotl`: the installed `axolotl train` in a child, in the prepared environment, the guard as a plugin.

The config is handed over in a file beside the other records of the run: as it is, with the guard in its plugin list and
with what was decided before the start (dtype, checkpoint, paths). Axolotl's exit code passes through; restarts are not
ours there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.facts.models import local_config
from vramwise.files import write_new
from vramwise.training.parent.child import PIDS, Signals
from vramwise.training.parent.extras import axolotl_command
from vramwise.training.plan import PLAN_FILE, TrainPlan
from vramwise.types import Document, Edit

GUARD_PLUGIN = "vramwise.integrations.axolotl.MemoryGuardPlugin"
CONFIG_FILE = "axolotl.yml"
PLAN_VARIABLE = "VRAMWISE_PLAN"


def train_with_axolotl(plan: TrainPlan) -> int:
    """Run it to its end; its exit code."""
    command = axolotl_command()
    config = write_config(plan)
    plan_file = str(Path(plan.output_dir) / PLAN_FILE)
    environment = {**os.environ, **plan.environment, PLAN_VARIABLE: plan_file}
    signals = Signals(Path(plan.output_dir) / PIDS)
    with signals.forwarded():
        return signals.run([command, "train", str(config)], environment)


def write_config(plan: TrainPlan) -> Path:
    """The user's config with the guard in its plugin list and what the plan decided; the user's file is not touched."""
    document = parse_document(plan.config_path, plan.config_text.encode("utf-8"))
    edits = [*_guard(document), *_dtype(document, plan), *_paths(document)]
    if plan.resume_from is not None:
        edits.append(Edit(op="insert", key="resume_from_checkpoint", value=plan.resume_from))
    text = apply_edits(document, edits).text
    path = Path(plan.output_dir) / CONFIG_FILE
    write_new(path, text.encode("utf-8"), make_folder=True)
    return path


def _guard(document: Document) -> Iterator[Edit]:
    plugins = [str(name) for name in document.values.get("plugins") or ()]
    if GUARD_PLUGIN not in plugins:
        yield Edit(op="insert", key="plugins", value=[*plugins, GUARD_PLUGIN])


def _dtype(document: Document, plan: TrainPlan) -> Iterator[Edit]:
    """`bf16: auto` as it was decided: Axolotl would take emulated bf16 for bf16, and fp16 where there is no GPU."""
    values = document.values
    if values.get("bf16", "auto") != "auto" or values.get("fp16") or plan.precision == "fp8":
        return
    yield Edit(op="insert", key="bf16", value=plan.precision == "bf16")
    if plan.precision == "fp16" and not values.get("float16"):
        yield Edit(op="insert", key="fp16", value=True)


def _paths(document: Document) -> Iterator[Edit]:
    """Axolotl looks in the working folder only: what stands beside the config is named in full."""
    beside = Path(document.path).parent
    model = document.values.get("base_model")
    if isinstance(model, str):
        found = local_config(model, beside)
        if found is not None and not Path(model).expanduser().exists():
            yield Edit(op="set", key="base_model", value=str(found.parent))
    for name in ("datasets", "test_datasets"):
        for index, block in enumerate(document.values.get(name) or ()):
            path = block.get("path") if isinstance(block, dict) else None
            if _only_beside(path, beside):
                yield Edit(op="set", key=f"{name}.{index}.path", value=str(beside / str(path)))


def _only_beside(path: Any, beside: Path) -> bool:
    return isinstance(path, str) and bool(path) and not Path(path).exists() and (beside / path).exists()
