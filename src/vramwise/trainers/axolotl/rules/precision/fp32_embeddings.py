"""fp32-embeddings"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Fix, RunSpec, Severity

_FLASH = "flash_attention_2"
# Models without attention: the attention backend changes nothing for them.
_NO_ATTENTION = re.compile(r"(?<![a-z])(falcon[-_]?)?(mamba|rwkv)", re.IGNORECASE)


@rule(
    id="fp32-embeddings",
    explains={"flash-needs-half"},
    severity=Severity.WARNING,
    costs_memory=True,
    moot_when_embedded=True,
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nbf16: true\nattn_implementation: sdpa\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: true\nattn_implementation: flash_attention_2\n",
    beyond_trainer="Axolotl does this without warning (verified in a run).",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A full fine-tune with sdpa or eager attention keeps embeddings, head and norms in fp32.

    Axolotl first upcasts norms, embeddings and lm_head to fp32. It casts them back to bf16 only with an adapter, under
    FSDP, with cut cross entropy, or with an attention backend other than sdpa and eager (unset means sdpa). In a plain
    full fine-tune they stay fp32, and so do their gradients and optimizer states: 16 bytes per parameter with Adam
    instead of 8. With a large vocabulary that is much of the model: the embeddings of Llama-3.2-1B, 128256 × 2048, take
    3.9 GiB instead of 2.0.

    Use flash attention if the card supports it (sm_80 and newer) and the model has attention, or use the cut cross
    entropy plugin. DeepSpeed casts the whole model itself, so the rule reports nothing there.
    """
    if (
        run.adapter.kind
        or not run.precision.fp32_embeddings
        or run.precision.weights_dtype != "bf16"
        or run.sharding.kind not in ("none", "ddp")
    ):
        return
    if not run.base_model:
        return  # no training config
    yield Hit(
        field="attn_implementation",
        message=(
            f"full fine-tune {_under(run)}: Axolotl keeps embeddings, lm_head and norms in fp32, "
            "with their gradients and optimizer states: 16 bytes per parameter with Adam instead of 8"
        ),
        fix=_fix(run),
    )


def _attends(run: RunSpec) -> bool:
    return not _NO_ATTENTION.search(f"{run.base_model} {run.config.get('model_type', '')}")


def _under(run: RunSpec) -> str:
    return f"with {run.kernels.attn_implementation} attention" if _attends(run) else "of a model without attention"


def _fix(run: RunSpec) -> Fix | None:
    gpu = run.target.gpu
    before_ampere = gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)
    if before_ampere or not _attends(run):
        return None  # FlashAttention 2 starts with Ampere
    flags = [key for key in ("sdp_attention", "eager_attention") if key in run.config]
    edits = (insert_key("attn_implementation", _FLASH, beside=flags[0] if flags else "base_model"),)
    return unsafe(f"Use {_FLASH}", *edits, *(delete_key(key) for key in flags))
