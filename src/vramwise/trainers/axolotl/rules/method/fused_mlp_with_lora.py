"""fused-mlp-with-lora"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="fused-mlp-with-lora",
    severity=Severity.ERROR,
    topic="method",
    bad="adapter: lora\nflash_attn_fuse_mlp: true\n",
    good="adapter: lora\nflash_attn_fuse_mlp: false\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`flash_attn_fuse_mlp` with a LoRA adapter.

    Fusing puts gate and up projection into one module, so the linears that LoRA should adapt are gone. Axolotl refuses
    the file for `lora` and `qlora`.

    Remove the key: the MLP computes the same, and LoRA has kernels of its own (`lora_mlp_kernel`).
    """
    if run.adapter.kind in ("lora", "qlora") and run.config.get("flash_attn_fuse_mlp"):
        message = (
            f"flash_attn_fuse_mlp with adapter: {run.adapter.kind}: the linears to adapt are fused away, Axolotl "
            "refuses "
            "the file"
        )
        yield Hit(
            key="flash_attn_fuse_mlp",
            message=message,
            fix=safe("Leave the MLP unfused", delete_key("flash_attn_fuse_mlp")),
        )
