"""refused-by-llamafactory"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.llamafactory.refusals import refusals
from vramwise.types import RunSpec, Severity


@rule(
    id="refused-by-llamafactory",
    severity=Severity.ERROR,
    topic="config",
    bad=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\nquantization_bit: 4\n"
        "dataset: identity\ntemplate: qwen3\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\nquantization_bit: 4\n"
        "dataset: identity\ntemplate: qwen3\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Keys that LLaMA-Factory rejects together, or one without the other.

    `llamafactory-cli train` checks its arguments before it loads anything and stops with a ValueError: a quantised base
    in a full fine-tune, GaLore with LoRA, an evaluation without data, `neat_packing` outside sft, conflicting ZeRO 3
    options, a duplicate key, and about fifty more. The message names the keys, and the reason if known. The list
    follows `get_train_args` of 0.9.4 and 0.9.5, and is compared with its answers on many files.
    """
    for found in run.config.document.duplicates:
        first, last = found.first.line, found.last.line
        message = f"duplicate key '{found.key}' on lines {first} and {last}: LLaMA-Factory rejects the file"
        yield Hit(place=found.last, message=message)
    for key, sentence in refusals(run):
        yield Hit(key=key, message=f"{sentence}: LLaMA-Factory rejects the file")
