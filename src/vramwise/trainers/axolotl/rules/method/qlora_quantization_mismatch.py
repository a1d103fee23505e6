"""qlora-quantization-mismatch"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="qlora-quantization-mismatch",
    severity=Severity.ERROR,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: true\nload_in_4bit: false\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_8bit: false\nload_in_4bit: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`adapter: qlora` without the 4-bit base it stands for.

    QLoRA in Axolotl means a base in 4-bit nf4 by bitsandbytes. It refuses `qlora` with `load_in_8bit`, with `gptq`, or
    without `load_in_4bit: true`.

    For 4 bit write `load_in_4bit: true` (about 0.5 byte a parameter). For an 8-bit or a GPTQ base use `adapter: lora`.
    """
    if run.adapter.kind != "qlora" or run.config.get("merge_lora"):
        return
    eight, gptq, four = (bool(run.config.get(key)) for key in ("load_in_8bit", "gptq", "load_in_4bit"))
    quantise = insert_key("load_in_4bit", True, beside="adapter")
    if eight:
        yield Hit(
            key="load_in_8bit",
            message="adapter: qlora with load_in_8bit: qlora means a 4-bit base, and Axolotl refuses the file",
            fix=unsafe("Load the base in 4 bit", set_key("load_in_8bit", False), quantise),
        )
    if gptq:
        yield Hit(
            key="gptq",
            message="adapter: qlora on a GPTQ base: qlora quantises by bitsandbytes, and Axolotl refuses the file",
            fix=unsafe("Train lora on the GPTQ base", set_key("adapter", "lora")),
        )
    if not (four or eight or gptq):
        yield Hit(
            key="load_in_4bit",
            near=("adapter",),
            message=(
                "adapter: qlora without load_in_4bit: true: nothing would be quantised, and Axolotl refuses the file"
            ),
            fix=unsafe("Load the base in 4 bit", quantise),
        )
