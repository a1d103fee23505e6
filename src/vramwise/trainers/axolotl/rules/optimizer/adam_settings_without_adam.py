"""adam-settings-without-adam"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_SETTINGS = ("adam_beta1", "adam_beta2", "adam_epsilon")
# Built without any of the three: transformers 5 (trainer_optimizer.py), Axolotl (core/builders/base.py).
_READ_NONE = frozenset(
    {
        "sgd",
        "adagrad",
        "adafactor",
        "rmsprop",
        "rmsprop_bnb",
        "rmsprop_bnb_8bit",
        "rmsprop_bnb_32bit",
        "lomo",
        "adalomo",
        "grokadamw",
        "polora",
        "schedule_free_sgd",
        "flash_sgd",
        "flash_sgdw",
    }
)


@rule(
    id="adam-settings-without-adam",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adafactor\nadam_beta2: 0.95\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_fused\nadam_beta2: 0.95\n",
    beyond_trainer="Axolotl looks for `adamw` in the name, but GaLore and GrokAdamW do not read the settings.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """AdamW settings are set for an optimizer that is not AdamW.

    `adam_beta1`, `adam_beta2` and `adam_epsilon` configure the AdamW family. SGD, Adafactor, RMSprop, LOMO and GaLore
    do not read them, so the values have no effect. Lion, Muon, AdEMAMix and a few others read some of them for their
    own moments, where AdamW's usual values may not be suitable: the finding is then only a note.
    """
    name = run.optimizer.name
    if name not in schema_of(run).optimizers():
        return
    for key in _SETTINGS:
        value = run.config.get(key)
        if not value:
            continue
        if _ignores(name, key):
            yield Hit(
                key=key,
                message=f"{key} {value} has no effect: optimizer {name} does not read it",
                fix=safe(f"Remove {key}, which is not read", delete_key(key)),
            )
        elif "adamw" not in name:
            yield Hit(
                key=key,
                severity=Severity.INFO,
                message=f"{key} {value} is an AdamW setting that optimizer {name} reads too: check the value",
            )


def _ignores(name: str, key: str) -> bool:
    return name in _READ_NONE or name.startswith("galore_") or ("lion" in name and key == "adam_epsilon")
