"""prequantized-with-bitsandbytes"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="prequantized-with-bitsandbytes",
    severity=Severity.ERROR,
    topic="method",
    bad="base_model: openai/gpt-oss-20b\nadapter: lora\nmodel_quantization_config: Mxfp4Config\nload_in_8bit: true\n",
    good="base_model: openai/gpt-oss-20b\nadapter: lora\nmodel_quantization_config: Mxfp4Config\nload_in_8bit: false\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A checkpoint's own quantisation and bitsandbytes at once.

    `model_quantization_config` loads a checkpoint in the format it was stored in (mxfp4, fp8); `load_in_4bit` and
    `load_in_8bit` quantise plain weights with bitsandbytes while they load. A weight can have one of the two: Axolotl
    refuses both together.

    Remove `load_in_4bit` or `load_in_8bit`, and use `adapter: lora` (qlora always means bitsandbytes 4 bit).
    """
    method = run.config.get("model_quantization_config")
    for key in ("load_in_4bit", "load_in_8bit"):
        if method and run.config.get(key):
            message = (
                f"{key} with model_quantization_config: {method}: a weight is quantised one way, Axolotl refuses the "
                "file"
            )
            edits = [set_key(key, False)]
            if run.adapter.kind == "qlora":  # which means bitsandbytes and is refused without it
                edits.append(set_key("adapter", "lora"))
            yield Hit(key=key, message=message, fix=unsafe("Keep the checkpoint's own format", *edits))
