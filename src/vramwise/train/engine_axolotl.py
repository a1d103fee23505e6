"""`--engine axolotl`: the installed `axolotl train` in a child, in the prepared environment, the guard as a plugin.

The config is handed over as it is, with the guard's plugin added to its list, in a file beside the other records of the
run. Axolotl's exit code passes through; restarts are not ours there.
"""

from __future__ import annotations

import os
from pathlib import Path

from vramwise.config.document import parse_document
from vramwise.config.edit import apply_edits
from vramwise.train.child import PIDS, Signals
from vramwise.train.extras import axolotl_command
from vramwise.train.plan import PLAN_FILE, TrainPlan
from vramwise.types import Edit

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
    plugins = [str(name) for name in document.values.get("plugins") or ()]
    edits = []
    if GUARD_PLUGIN not in plugins:
        edits.append(Edit(op="insert", key="plugins", value=[*plugins, GUARD_PLUGIN]))
    if plan.resume_from is not None:
        edits.append(Edit(op="insert", key="resume_from_checkpoint", value=plan.resume_from))
    text = apply_edits(document, edits).text if edits else document.text
    path = Path(plan.output_dir) / CONFIG_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path
