"""qlora-experts-unquantised"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib

# nf4 with double quantisation: half a byte per weight, a byte per 64 weights, four bytes per 256 of those blocks
_PACKED = 0.5 + 1 / 64 + 4 / (64 * 256)
_WORTH_SAYING = 2**30


@rule(
    id="qlora-experts-unquantised",
    severity=Severity.WARNING,
    topic="method",
    costs_memory=True,
    needs={"memory"},
    bad=(
        "base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n"
        "lora_target_modules: [q_proj, v_proj]\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"
        "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_r: 16\n"
        "lora_alpha: 32\nlora_target_modules: [q_proj, v_proj]\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"
        "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    options="--gpu h100",
    beyond_trainer="Axolotl leaves the experts unquantised without warning.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`load_in_4bit` does not quantise the experts of a mixture-of-experts model.

    bitsandbytes quantises linear layers. transformers 5 stores the experts of a layer as one 3-D parameter per
    projection, which is not a linear layer, so they are loaded in 16 bit. They are most of the model: in Qwen3-30B-A3B,
    54 GiB of experts instead of 14 GiB. PEFT's preparation for training on a quantised base then casts every
    unquantised weight to fp32, including the experts, and nothing casts them back: 108 GiB.

    Set `quantize_moe_experts: true` to quantise them while they load. It needs target modules by name (Axolotl refuses
    `lora_target_linear` with it).
    """
    if memory is None or run.loading.quantization not in ("4bit", "8bit") or memory.experts_bytes < _WORTH_SAYING:
        return
    weights = memory.experts_bytes / 2
    packed = weights * (_PACKED if run.loading.quantization == "4bit" else 1.0)
    version = run.target.stack.releases.get("transformers")
    shown = "transformers 5" if version is None else f"transformers {version.version}"
    yield Hit(
        field="quantization",
        message=(
            f"{gib(memory.experts_bytes)} of experts are not quantised ({shown} stores them as 3-D parameters), and "
            "PEFT casts them to fp32, which doubles that; quantize_moe_experts: true saves at least "
            f"{gib(int(memory.experts_bytes - packed))}"
        ),
    )
