"""packing-with-rl"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="packing-with-rl",
    severity=Severity.ERROR,
    topic="method",
    bad="rl: dpo\nsample_packing: true\nsequence_len: 2048\n",
    good="rl: dpo\nsample_packing: false\nsequence_len: 2048\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Sample packing with preference or RL training.

    RL trainers compare answers pair by pair or group by group: a row must hold one answer, so rows cannot be packed.
    Axolotl refuses `sample_packing` with any `rl`, and for `rl: kto` `eval_sample_packing` as well.

    Turn packing off. The micro-batch then counts rows, not packed rows: with short samples a step holds fewer tokens
    than before, so it may be raised.
    """
    if not run.objective.rl:
        return
    keys = ["sample_packing"]
    if run.objective.rl == "kto":
        keys.append("eval_sample_packing")
    for key in keys:
        if run.config.get(key):
            yield Hit(
                key=key,
                message=(
                    f"{key} with rl: {run.objective.rl} is refused: RL rows hold one answer each and cannot be packed"
                ),
                fix=unsafe(f"Set {key} to false", set_key(key, False)),
            )
