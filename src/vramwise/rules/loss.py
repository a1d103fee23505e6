"""Rules for every trainer about the logits and the loss computed from them."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.rules.room import fits_with_a_margin, is_tight, lacks_room
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib
from vramwise.variants import changes


@rule(
    id="chunked-loss-holds-logits",
    explains={"logits"},
    severity=Severity.INFO,
    bad="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\nchunked_cross_entropy: true\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\n"
        "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_fused_linear_cross_entropy: true\n"
    ),
    beyond_trainer="It saves less than its name suggests: only the fp32 copy of the logits is made in chunks.",
)
def chunked_loss_holds_logits(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Chunked cross entropy still holds the full logits.

    The model computes the logits of all tokens, tokens × vocabulary in the compute dtype, and their gradient in
    backward. Chunking splits only the fp32 copy that the loss is computed from, in 8 parts by default. Cut cross
    entropy and Liger's fused linear cross entropy never hold the logits at all.

    If the run is predicted to fit with 5 % of the card to spare, this is reported only with `--pedantic`.
    """
    if run.kernels.loss_kernel != "chunked":
        return
    micro, length = run.batch.micro_batch_size, run.shapes.sequence_len
    width = 4 if run.precision.compute == "fp32" else 2
    yield Hit(
        field="loss_kernel",
        pedantic=fits_with_a_margin(memory),
        message=(
            f"{run.keys['loss_kernel']} splits only the fp32 copy into {run.kernels.loss_chunks} chunks: the full "
            f"logits ({micro} × {length} = {micro * length} tokens × vocabulary × {width} bytes) are still held"
        ),
    )


# Below this share of the peak, a loss without logits would hardly make a difference.
_SHARE = 0.05


@rule(
    id="logits-dominate",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    lighter_at_full_rows=True,
    figured="yes",
    without_gain="dropped",
    needs={"memory"},
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 4\n"
        "bf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 4\n"
        "bf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
        "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_fused_linear_cross_entropy: true\n"
    ),
    options="--gpu 16GB",
    beyond_trainer="The trainer does not check memory; vramwise simulates the run.",
)
def logits_dominate(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The run has little room on this card, and a fused loss would free the memory of the logits.

    The loss needs tokens × vocabulary numbers, first in bf16, then several times in fp32: with a large vocabulary that
    is more than all activations of a checkpointed model. Llama-3 shape, 4,096 tokens: the peak is three times 2.0 GiB
    above the memory before the loss.

    Liger's fused linear cross entropy and cut cross entropy compute the loss in pieces and never hold the logits; the
    loss is the same up to rounding. Chunked cross entropy still holds the bf16 logits.

    The rule applies if the run does not fit or leaves less than a tenth of the card free, and a fused loss is
    predicted to need less. With more room, the logits are harmless. It is a warning if the run does not fit or leaves
    less than 5 % (see `tight-fit`). Otherwise it is a note, also for a run that fits with full rows although the data
    may have shorter ones.
    """
    if memory is None or run.kernels.loss_kernel != "stock" or run.objective.rl is not None or not lacks_room(memory):
        return
    logits = _added_by_the_loss(memory)
    if logits < _SHARE * memory.peak_allocated_bytes:
        return
    yield Hit(
        field="micro_batch_size",
        message=(
            f"the default loss allocates {gib(logits)} of {gib(memory.peak_allocated_bytes)} for logits; Liger's "
            "fused linear cross entropy and cut cross entropy never hold them"
        ),
        change=changes.fuse_loss(run),
        severity=None if memory.out_of_memory is not None or is_tight(memory) else Severity.INFO,
    )


def _added_by_the_loss(memory: MemoryReport) -> int:
    """Return what the loss holds beyond the forward pass: the logits, and what is computed from them."""
    forward = {peak.step: peak.peak_allocated_bytes for peak in memory.phases if peak.phase == "forward"}
    loss = [peak for peak in memory.phases if peak.phase == "loss" and peak.step in forward]
    return max((peak.peak_allocated_bytes - forward[peak.step] for peak in loss), default=0)
