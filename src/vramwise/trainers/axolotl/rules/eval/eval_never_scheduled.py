"""eval-never-scheduled"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_SCHEDULES = ("eval_steps", "eval_strategy", "evaluation_strategy")


@rule(
    id="eval-never-scheduled",
    severity=Severity.INFO,
    topic="eval",
    bad="val_set_size: 0.05\nmicro_batch_size: 2\n",
    good="val_set_size: 0.05\nmicro_batch_size: 2\neval_strategy: epoch\n",
    beyond_trainer='Axolotl accepts it and passes no eval_strategy on; the default of transformers is "no".',
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Data is held out for evaluation, but no evaluation ever runs.

    `val_set_size` and `test_datasets` only set data aside. Evaluations are scheduled by `eval_steps`, `eval_strategy`
    or `evals_per_epoch`. If none of them is set, the default of transformers, "no", applies. The held-out share is then
    missing from training but never evaluated.

    `evals_per_epoch` is converted to a fraction of the run, 1 / (evals_per_epoch × num_epochs), and only a fraction
    below 1 is used. One evaluation per epoch in a run of one epoch therefore schedules none. Use `eval_strategy: epoch`
    instead.
    """
    if not run.evaluation.evaluates or any(run.config.get(key) for key in _SCHEDULES):
        return
    source = "test_datasets" if run.config.get("test_datasets") else "val_set_size"
    count = run.config.get("evals_per_epoch")
    if not count:
        yield Hit(
            key=source,
            message=f"{_held_out(run, source)}, but no eval runs: eval_steps, eval_strategy, evals_per_epoch are unset",
            fix=unsafe("Evaluate after every epoch", insert_key("eval_strategy", "epoch", beside=source)),
        )
    elif count * _epochs(run) <= 1:
        yield Hit(
            key="evals_per_epoch",
            message=(
                f"evals_per_epoch {count} × num_epochs {_epochs(run):g} = {count * _epochs(run):g}: Axolotl schedules "
                "evals only when this is above 1, so no eval runs"
            ),
            fix=unsafe(
                "Evaluate after every epoch: eval_strategy epoch",
                insert_key("eval_strategy", "epoch", beside="evals_per_epoch"),
                delete_key("evals_per_epoch"),
            ),
        )


def _epochs(run: RunSpec) -> float:
    return float(run.config.get("num_epochs", 1.0))


def _held_out(run: RunSpec, source: str) -> str:
    return (
        "test_datasets is given"
        if source == "test_datasets"
        else f"val_set_size {run.config.get(source):g} is held out"
    )
