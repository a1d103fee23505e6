"""argument-misread"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.arguments.parsing import NO
from vramwise.trainers.arguments.trainer import trainer_of
from vramwise.types import Fix, RunSpec, Severity, join_key
from vramwise.units import whole_number

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"


@rule(
    id="argument-misread",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="config",
    bad=f'{_BASE}packing: "false"\n',
    good=f"{_BASE}packing: false\n",
    beyond_trainer="Parsers accept values of any type; errors show up where the values are used, or never.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A value of the wrong type that the parser does not reject.

    Dataclasses do not check types. A list instead of a number, an unknown strategy or a quoted number (which
    LLaMA-Factory does not convert) passes the parser, and the run stops where the value is used. This is an error if
    the key affects memory, and a warning otherwise. A switch accepts anything: whatever Python counts as true is on.
    `packing: "false"` is text and switches packing on in LLaMA-Factory, while TRL converts it.

    Predictions ignore such values; use one of the right type.
    """
    trainer = trainer_of(run)
    if trainer is None:
        return
    for found in trainer.vocabulary_of(run).misreadings(run.config.document.values):
        switch = "counts as" in found.sentence
        ends = "" if switch else ": the parser accepts it, and the run stops where it is used"
        yield Hit(
            key=join_key((found.key,)),
            message=f"{found.sentence}{ends}",
            severity=None if found.grave else Severity.WARNING,
            fix=_fix(run, found.key),
            still_runs=switch,
        )


def _fix(run: RunSpec, key: str) -> Fix | None:
    value = run.config.document.values[key]
    if not isinstance(value, str):
        return None
    if whole_number(value.strip().removeprefix("-")) is not None:
        return unsafe("Remove the quotes", set_key(key, int(value)))
    return unsafe("Remove the quotes", set_key(key, False)) if value.lower() in NO else None
