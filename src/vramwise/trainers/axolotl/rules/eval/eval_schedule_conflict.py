"""eval-schedule-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_SCHEDULES = ("eval_steps", "evals_per_epoch", "eval_strategy", "evaluation_strategy")


@rule(
    id="eval-schedule-conflict",
    severity=Severity.ERROR,
    also=(Severity.INFO, Severity.WARNING),
    topic="eval",
    bad="val_set_size: 0.05\neval_steps: 50\nevals_per_epoch: 4\n",
    good="val_set_size: 0.05\nevals_per_epoch: 4\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The eval schedule contradicts itself, or there is nothing to evaluate.

    One key decides when to evaluate: `eval_steps` or `evals_per_epoch` (each with `eval_strategy: steps` or unset), or
    `eval_strategy` alone. Axolotl refuses two keys that disagree, and a schedule with an explicit `val_set_size: 0` and
    no `test_datasets`. `do_bench_eval` runs with the evaluations, so it needs `eval_steps` or `evals_per_epoch`.

    Axolotl accepts some schedules without held-out data; then no evaluation runs. Keep one schedule, and give it data
    with `val_set_size` or `test_datasets`.
    """
    yield from _two_schedules(run)
    yield from _without_data(run)
    yield from _bench(run)


def _strategy(run: RunSpec) -> tuple[str, str]:
    """The strategy and the key that sets it; ("", "") if there is none."""
    for key in ("eval_strategy", "evaluation_strategy"):
        if run.config.get(key) is not None:
            return str(run.config.get(key)), key
    return "", ""


def _two_schedules(run: RunSpec) -> Iterator[Hit]:
    strategy, key = _strategy(run)
    steps, count = run.config.get("eval_steps"), run.config.get("evals_per_epoch")
    if steps and strategy and strategy != "steps":
        yield Hit(
            key=key,
            message=f"eval_strategy {strategy} contradicts eval_steps {steps}, which needs eval_strategy steps",
            fix=unsafe("Evaluate by steps", set_key(key, "steps")),
        )
    if steps and count:
        yield Hit(
            key="evals_per_epoch",
            message=f"eval_steps {steps} and evals_per_epoch {count} are two schedules, which Axolotl refuses together",
            fix=unsafe(f"Keep eval_steps {steps}", delete_key("evals_per_epoch")),
        )
    elif count and strategy and strategy != "steps":
        yield Hit(
            key=key,
            message=f"eval_strategy {strategy} contradicts evals_per_epoch {count}: Axolotl refuses both together",
            fix=unsafe(f"Keep evals_per_epoch {count}", delete_key(key)),
        )


def _without_data(run: RunSpec) -> Iterator[Hit]:
    config = run.config
    if config.get("test_datasets") or config.get("val_set_size") or config.get("do_bench_eval"):
        return
    strategy, _ = _strategy(run)
    written = [key for key in _SCHEDULES if config.get(key)]
    if not written or strategy == "no":
        return
    refused = config.get("val_set_size") == 0 and written != ["evals_per_epoch"]
    why = (
        "Axolotl refuses a schedule with nothing to evaluate"
        if refused
        else "there is nothing to evaluate, so no eval runs"
    )
    yield Hit(
        key=written[0],
        message=f"{written[0]} {config.get(written[0])} with val_set_size 0 and no test_datasets: {why}",
        severity=Severity.ERROR if refused else Severity.INFO,
        fix=safe(f"Delete {', '.join(written)}", *(delete_key(key) for key in written)) if refused else None,
    )


def _bench(run: RunSpec) -> Iterator[Hit]:
    config = run.config
    if not config.get("do_bench_eval"):
        return
    if not (config.get("eval_steps") or config.get("evals_per_epoch")):
        yield Hit(
            key="do_bench_eval",
            message="Axolotl refuses do_bench_eval without eval_steps or evals_per_epoch",
            fix=unsafe("Evaluate twice per epoch", insert_key("evals_per_epoch", 2, beside="do_bench_eval")),
        )
    if not (config.get("test_datasets") or config.get("val_set_size")):
        yield Hit(
            key="do_bench_eval",
            message="do_bench_eval without val_set_size or test_datasets: Axolotl adds an empty test set to evaluate",
            severity=Severity.WARNING,
        )
