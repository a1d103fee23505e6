"""early-stopping-without-steps"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Edit, Fix, RunSpec, Severity

_KEY = "early_stopping_patience"
# What else decides when to save or evaluate, and would contradict the steps.
_RIVALS = {
    "save_steps": ("save_strategy", "saves_per_epoch"),
    "eval_steps": ("eval_strategy", "evaluation_strategy", "evals_per_epoch"),
}


@rule(
    id="early-stopping-without-steps",
    severity=Severity.ERROR,
    topic="eval",
    bad="val_set_size: 0.05\neval_steps: 50\nearly_stopping_patience: 3\n",
    good="val_set_size: 0.05\neval_steps: 50\nsave_steps: 50\nearly_stopping_patience: 3\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Early stopping is on, but evaluations and checkpoints do not have matching steps.

    Early stopping returns to the best checkpoint, so every checkpoint must coincide with an evaluation. Axolotl
    requires both `eval_steps` and `save_steps`, with `save_steps` a multiple of `eval_steps`. Strategies and counts per
    epoch are not enough, because they are converted to steps only after this check.

    Fractions of the run are compared as binary fractions: 0.3 is not a multiple of 0.1, but 0.5 is a multiple of 0.25.
    """
    if not run.config.get(_KEY):
        return
    steps = {name: run.config.get(name) for name in _RIVALS}
    missing = [name for name, value in steps.items() if not value]
    if missing:
        yield Hit(key=_KEY, message=_missing(run, missing), fix=_complete(run, missing))
    elif steps["save_steps"] % steps["eval_steps"] != 0:
        yield Hit(key="save_steps", message=_uneven(**steps), fix=_even(**steps))


def _missing(run: RunSpec, missing: list[str]) -> str:
    rivals = [key for name in missing for key in _RIVALS[name] if run.config.get(key)]
    instead = f" ({' and '.join(rivals)} is not enough)" if rivals else ""
    return (
        f"Axolotl refuses {_KEY} {run.config.get(_KEY)} without {' and '.join(missing)}{instead}: "
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
