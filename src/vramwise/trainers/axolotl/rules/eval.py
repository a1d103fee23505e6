"""Axolotl's own rules about evaluation: when it runs, on what data, and early stopping."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Edit, Fix, RunSpec, Severity

_PATIENCE = "early_stopping_patience"
# What else decides when to save or evaluate, and would contradict the steps.
_RIVALS = {
    "save_steps": ("save_strategy", "saves_per_epoch"),
    "eval_steps": ("eval_strategy", "evaluation_strategy", "evals_per_epoch"),
}


@rule(
    id="early-stopping-without-steps",
    bad="val_set_size: 0.05\neval_steps: 50\nearly_stopping_patience: 3\n",
    good="val_set_size: 0.05\neval_steps: 50\nsave_steps: 50\nearly_stopping_patience: 3\n",
)
def early_stopping_without_steps(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Early stopping is on, but evaluations and checkpoints do not have matching steps.

    Early stopping returns to the best checkpoint, so every checkpoint must coincide with an evaluation. Axolotl
    requires both `eval_steps` and `save_steps`, with `save_steps` a multiple of `eval_steps`. Strategies and counts per
    epoch are not enough, because they are converted to steps only after this check.

    Fractions of the run are compared as binary fractions: 0.3 is not a multiple of 0.1, but 0.5 is a multiple of 0.25.
    """
    if not run.config.get(_PATIENCE):
        return
    steps = {name: run.config.get(name) for name in _RIVALS}
    missing = [name for name, value in steps.items() if not value]
    if missing:
        yield Hit(_missing(run, missing), _PATIENCE, _complete(run, missing))
    elif steps["save_steps"] % steps["eval_steps"] != 0:
        yield Hit(_uneven(**steps), "save_steps", _even(**steps))


def _missing(run: RunSpec, missing: list[str]) -> str:
    rivals = [key for name in missing for key in _RIVALS[name] if run.config.get(key)]
    instead = f" ({' and '.join(rivals)} is not enough)" if rivals else ""
    return (
        f"Axolotl refuses {_PATIENCE} {run.config.get(_PATIENCE)} without {' and '.join(missing)}{instead}: "
        "early stopping needs evals and checkpoints scheduled by steps"
    )


def _complete(run: RunSpec, missing: list[str]) -> Fix | None:
    """Give the missing schedule the steps of the other one; None if both are missing."""
    if len(missing) != 1:
        return None
    [name] = missing
    other = next(key for key in _RIVALS if key != name)
    value = run.config.get(other)
    return unsafe(f"Set {name} to {value}, like {other}", *_write_steps(run, name, other, value))


def _write_steps(run: RunSpec, name: str, other: str, value: float) -> Iterator[Edit]:
    yield insert_key(name, value, beside=other)
    yield from (delete_key(key) for key in _RIVALS[name] if run.config.get(key) not in (None, "steps"))


def _uneven(*, save_steps: float, eval_steps: float) -> str:
    rest = save_steps % eval_steps
    return (
        f"save_steps {save_steps} is not a multiple of eval_steps {eval_steps} (remainder {rest:g}): "
        "Axolotl refuses early stopping unless every checkpoint coincides with an eval"
    )


def _even(*, save_steps: float, eval_steps: float) -> Fix:
    if isinstance(save_steps, int) and isinstance(eval_steps, int):
        value: float = max(1, round(save_steps / eval_steps)) * eval_steps
    else:
        value = eval_steps
    return unsafe(f"Save every {value} steps", set_key("save_steps", value))


_SCHEDULING_KEYS = ("eval_steps", "eval_strategy", "evaluation_strategy")


@rule(
    id="eval-never-scheduled",
    severity=Severity.INFO,
    bad="val_set_size: 0.05\nmicro_batch_size: 2\n",
    good="val_set_size: 0.05\nmicro_batch_size: 2\neval_strategy: epoch\n",
    beyond_trainer='Axolotl accepts it and passes no eval_strategy on; the default of transformers is "no".',
)
def eval_never_scheduled(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Data is held out for evaluation, but no evaluation ever runs.

    `val_set_size` and `test_datasets` only set data aside. Evaluations are scheduled by `eval_steps`, `eval_strategy`
    or `evals_per_epoch`. If none of them is set, the default of transformers, "no", applies. The held-out share is then
    missing from training but never evaluated.

    `evals_per_epoch` is converted to a fraction of the run, 1 / (evals_per_epoch × num_epochs), and only a fraction
    below 1 is used. One evaluation per epoch in a run of one epoch therefore schedules none. Use `eval_strategy: epoch`
    instead.
    """
    if not run.evaluation.evaluates or any(run.config.get(key) for key in _SCHEDULING_KEYS):
        return
    source = "test_datasets" if run.config.get("test_datasets") else "val_set_size"
    count = run.config.get("evals_per_epoch")
    if not count:
        yield Hit(
            f"{_held_out(run, source)}, but no eval runs: eval_steps, eval_strategy, evals_per_epoch are unset",
            source,
            unsafe("Evaluate after every epoch", insert_key("eval_strategy", "epoch", beside=source)),
        )
    elif count * _epochs(run) <= 1:
        yield Hit(
            f"evals_per_epoch {count} × num_epochs {_epochs(run):g} = {count * _epochs(run):g}: Axolotl schedules "
            "evals only when this is above 1, so no eval runs",
            "evals_per_epoch",
            unsafe(
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


_EVAL_PACKING = "eval_sample_packing"
_METRICS = ("chrf", "comet", "perplexity", "sacrebleu", "ter")


@rule(
    id="eval-packing-conflict",
    bad="sample_packing: true\nval_set_size: 0.05\neval_steps: 50\neval_table_size: 5\n",
    good="sample_packing: true\neval_sample_packing: false\nval_set_size: 0.05\neval_steps: 50\neval_table_size: 5\n",
)
def eval_packing_conflict(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Evaluation is packed, but a requested result needs single samples.

    With `sample_packing`, evaluation is packed too unless `eval_sample_packing: false` is set. `eval_table_size` and
    `do_causal_lm_eval` split evaluation rows into prompt and answer, which is impossible with packed rows, so Axolotl
    refuses them. Metrics for `do_causal_lm_eval` must be chrf, comet, perplexity, sacrebleu or ter.

    The fix is unsafe: unpacked evaluation uses `eval_batch_size` rows with shapes of their own, and Axolotl then drops
    the last incomplete training batch of an epoch.
    """
    if run.shapes.sample_packing and run.config.get("eval_table_size") and run.config.get(_EVAL_PACKING) is not False:
        yield _packed(run, f"eval_table_size {run.config.get('eval_table_size')}")
    if run.config.get("do_causal_lm_eval") and _packs(run):
        yield _packed(run, "do_causal_lm_eval")
    unknown = sorted({str(name) for name in run.config.get("eval_causal_lm_metrics", ())} - set(_METRICS))
    if unknown:
        yield Hit(
            f"Axolotl refuses eval_causal_lm_metrics {', '.join(unknown)}: supported are {', '.join(_METRICS)}",
            "eval_causal_lm_metrics",
        )


def _packs(run: RunSpec) -> bool:
    return run.evaluation.eval_sample_packing or bool(run.config.get(_EVAL_PACKING))


def _packed(run: RunSpec, feature: str) -> Hit:
    return Hit(
        f"Axolotl refuses {feature} on packed eval rows, and eval_sample_packing {_why(run)}",
        feature.split()[0],
        _turn_packing_off(run),
    )


def _why(run: RunSpec) -> str:
    return "is true" if run.config.get(_EVAL_PACKING) else "follows sample_packing"


def _turn_packing_off(run: RunSpec) -> Fix:
    beside = "sample_packing" if "sample_packing" in run.config else "do_causal_lm_eval"
    return unsafe("Do not pack evaluation", insert_key(_EVAL_PACKING, False, beside=beside))


_SCHEDULES = ("eval_steps", "evals_per_epoch", "eval_strategy", "evaluation_strategy")


@rule(
    id="eval-schedule-conflict",
    also=(Severity.INFO, Severity.WARNING),
    bad="val_set_size: 0.05\neval_steps: 50\nevals_per_epoch: 4\n",
    good="val_set_size: 0.05\nevals_per_epoch: 4\n",
)
def eval_schedule_conflict(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            f"eval_strategy {strategy} contradicts eval_steps {steps}, which needs eval_strategy steps",
            key,
            unsafe("Evaluate by steps", set_key(key, "steps")),
        )
    if steps and count:
        yield Hit(
            f"eval_steps {steps} and evals_per_epoch {count} are two schedules, which Axolotl refuses together",
            "evals_per_epoch",
            unsafe(f"Keep eval_steps {steps}", delete_key("evals_per_epoch")),
        )
    elif count and strategy and strategy != "steps":
        yield Hit(
            f"eval_strategy {strategy} contradicts evals_per_epoch {count}: Axolotl refuses both together",
            key,
            unsafe(f"Keep evals_per_epoch {count}", delete_key(key)),
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
        f"{written[0]} {config.get(written[0])} with val_set_size 0 and no test_datasets: {why}",
        written[0],
        safe(f"Delete {', '.join(written)}", *(delete_key(key) for key in written)) if refused else None,
        severity=Severity.ERROR if refused else Severity.INFO,
    )


def _bench(run: RunSpec) -> Iterator[Hit]:
    config = run.config
    if not config.get("do_bench_eval"):
        return
    if not (config.get("eval_steps") or config.get("evals_per_epoch")):
        yield Hit(
            "Axolotl refuses do_bench_eval without eval_steps or evals_per_epoch",
            "do_bench_eval",
            unsafe("Evaluate twice per epoch", insert_key("evals_per_epoch", 2, beside="do_bench_eval")),
        )
    if not (config.get("test_datasets") or config.get("val_set_size")):
        yield Hit(
            "do_bench_eval without val_set_size or test_datasets: Axolotl adds an empty test set to evaluate",
            "do_bench_eval",
            severity=Severity.WARNING,
        )


@rule(
    id="val-set-with-test-datasets",
    bad="val_set_size: 0.05\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
    good="val_set_size: 0\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
)
def val_set_with_test_datasets(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Both `val_set_size` and `test_datasets` are set.

    `val_set_size` splits a share off the training data. `test_datasets` names separate data. Axolotl refuses both
    together. If you keep `test_datasets`, the split-off share goes back into training. If you keep `val_set_size`, the
    named datasets are not used. Streamed data cannot be split: use `test_datasets`.
    """
    share = run.config.get("val_set_size")
    if not share:
        return
    fix = unsafe("Delete val_set_size", delete_key("val_set_size"))
    refused = f"Axolotl refuses val_set_size {share:g}"
    stream = next((key for key in ("pretraining_dataset", "streaming") if run.config.get(key)), None)
    if run.config.get("test_datasets"):
        message = f"{refused} together with test_datasets: they are two sources of evaluation data"
        yield Hit(message, "val_set_size", fix)
    elif stream:
        message = f"{refused} with {stream}: a stream cannot be split; use test_datasets"
        yield Hit(message, "val_set_size", fix)
