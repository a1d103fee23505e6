"""quantized-without-adapter"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Fix, RunSpec, Severity

_ADAPTERS = {"load_in_4bit": "qlora", "load_in_8bit": "lora", "gptq": "lora"}


@rule(
    id="quantized-without-adapter",
    severity=Severity.ERROR,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n",
    beyond_trainer="gptq without an adapter passes Axolotl's check; transformers' trainer then refuses the model.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The base model is loaded quantised, but no adapter is trained on it.

    Quantised weights cannot be trained: they have no gradient. Axolotl refuses `load_in_4bit` or `load_in_8bit` without
    an adapter; a GPTQ checkpoint without one passes and is refused by the trainer once it is loaded.

    Add an adapter (`qlora` for 4 bit, `lora` for 8 bit or GPTQ), or load in 16 bit for a full fine-tune, which needs
    about 8 bytes a parameter with Adam in bf16 instead of 0.5 to 1.
    """
    if run.adapter.kind or run.config.get("inference"):
        return
    for key, adapter in _ADAPTERS.items():
        if run.config.get(key):
            refuses = "transformers' trainer refuses the loaded model" if key == "gptq" else "Axolotl refuses the file"
            message = f"{key}: true without an adapter: quantised weights cannot be trained, and {refuses}"
            yield Hit(key=key, message=message, fix=_fix(run, key, adapter))


def _fix(run: RunSpec, key: str, adapter: str) -> Fix:
    if run.adapter.lora_r or key == "gptq":
        return unsafe(f"Train an adapter: {adapter}", insert_key("adapter", adapter, beside=key))
    return unsafe("Fine-tune all weights in 16 bit", set_key(key, False))
