"""save-schedule-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import mends_diffusion
from vramwise.types import RunSpec, Severity


@rule(
    id="save-schedule-conflict",
    severity=Severity.ERROR,
    topic="config",
    bad="save_strategy: epoch\nsave_steps: 100\n",
    good="save_strategy: steps\nsave_steps: 100\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The checkpoint schedule contradicts itself.

    One key decides when a checkpoint is saved: `save_steps` (with `save_strategy: steps` or none), `saves_per_epoch`,
    or `save_strategy` alone; unset means after every epoch. Axolotl refuses two that disagree. `save_strategy: best`
    saves when a metric improves, so it needs `metric_for_best_model`, usually eval_loss.
    """
    strategy = run.config.get("save_strategy")
    steps, count = run.config.get("save_steps"), run.config.get("saves_per_epoch")
    if strategy and steps and strategy != "steps":
        yield Hit(
            key="save_strategy",
            message=f"save_strategy {strategy} contradicts save_steps {steps}: Axolotl takes these only with steps",
            fix=unsafe("Save by steps", set_key("save_strategy", "steps")),
        )
    if count and steps:
        yield Hit(
            key="saves_per_epoch",
            message=f"save_steps {steps} and saves_per_epoch {count} are two schedules: Axolotl refuses them together",
            fix=unsafe(f"Keep save_steps {steps}", delete_key("saves_per_epoch")),
        )
    if strategy == "best" and not run.config.get("metric_for_best_model") and not mends_diffusion(run):
        yield Hit(
            key="save_strategy",
            message="save_strategy best does not say what is best: Axolotl refuses it without metric_for_best_model",
            fix=unsafe("Judge by eval_loss", insert_key("metric_for_best_model", "eval_loss", beside="save_strategy")),
        )
