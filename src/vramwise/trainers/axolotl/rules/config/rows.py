"""Axolotl rules with one condition and one message: config."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.trainers.axolotl.plugins import repairs_diffusion
from vramwise.types import RunSpec

_row = partial(row, topic="config")

save_schedule_conflict = _row(
    id="save-schedule-conflict",
    text="""The checkpoint schedule contradicts itself.

    One key decides when a checkpoint is saved: `save_steps` (with `save_strategy: steps` or unset), `saves_per_epoch`,
    or `save_strategy` alone. If none is set, a checkpoint is saved after every epoch. Axolotl refuses two keys that
    disagree. `save_strategy: best` saves when a metric improves, so it needs `metric_for_best_model`, usually
    eval_loss.
    """,
    bad="save_strategy: epoch\nsave_steps: 100\n",
    good="save_strategy: steps\nsave_steps: 100\n",
    cases=(
        Case(
            when=lambda run: (
                run.config.get("save_steps") and run.config.get("save_strategy") not in (None, "", "steps")
            ),
            key="save_strategy",
            message=lambda run: (
                f"save_strategy {run.config.get('save_strategy')} contradicts save_steps "
                f"{run.config.get('save_steps')}, which needs save_strategy steps"
            ),
            fix=unsafe("Save by steps", set_key("save_strategy", "steps")),
        ),
        Case(
            when=lambda run: run.config.get("saves_per_epoch") and run.config.get("save_steps"),
            key="saves_per_epoch",
            message=lambda run: (
                f"save_steps {run.config.get('save_steps')} and saves_per_epoch {run.config.get('saves_per_epoch')} "
                "are two schedules, which Axolotl refuses together"
            ),
            fix=lambda run: unsafe(f"Keep save_steps {run.config.get('save_steps')}", delete_key("saves_per_epoch")),
        ),
        Case(
            when=lambda run: (
                run.config.get("save_strategy") == "best"
                and not run.config.get("metric_for_best_model")
                and not repairs_diffusion(run)
            ),
            key="save_strategy",
            message="Axolotl refuses save_strategy: best without metric_for_best_model",
            fix=unsafe(
                "Compare checkpoints by eval_loss",
                insert_key("metric_for_best_model", "eval_loss", beside="save_strategy"),
            ),
        ),
    ),
)


def _stream(run: RunSpec) -> str:
    return next((key for key in ("pretraining_dataset", "streaming") if run.config.get(key)), "")


stream_without_max_steps = _row(
    id="stream-without-max-steps",
    text="""Streamed data without `max_steps`.

    A stream has no known length, so Axolotl cannot derive the number of steps or the learning-rate schedule from
    epochs. It refuses `pretraining_dataset` and `streaming: true` without `max_steps`.

    Compute the steps for a number of tokens as tokens / (sequence_len × micro_batch_size × gradient_accumulation_steps
    × gpus).
    """,
    bad="pretraining_dataset:\n  - path: allenai/c4\n    name: en\n",
    good="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\n",
    when=lambda run: _stream(run) and not run.config.get("max_steps"),
    key=_stream,
    message=lambda run: (
        f"Axolotl refuses {_stream(run)} without max_steps: a stream has no length; a step processes up to "
        f"sequence_len {run.shapes.sequence_len} × effective batch {run.batch.effective_batch_size} = "
        f"{run.shapes.sequence_len * run.batch.effective_batch_size:,} tokens"
    ),
)
