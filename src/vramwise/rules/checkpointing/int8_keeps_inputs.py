"""int8-keeps-inputs"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="int8-keeps-inputs",
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
    topic="checkpointing",
    bad=(
        "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nload_in_8bit: true\nsequence_len: 4096\n"
        "micro_batch_size: 2\ngradient_checkpointing: true\n"
    ),
    good=(
        "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nload_in_8bit: true\nsequence_len: 4096\n"
        "micro_batch_size: 2\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
    ),
    beyond_trainer="Non-reentrant is the default, and nothing says how little it saves on an 8-bit base.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Non-reentrant checkpointing saves little on an 8-bit base.

    bitsandbytes (0.50.2, `MatMul8bitLt`) stores the input of each 8-bit layer in the autograd context itself, not with
    `save_for_backward`. Non-reentrant checkpointing only drops tensors that are saved that way, so the inputs of all
    layers stay until the backward pass. Reentrant checkpointing builds no graph in the forward pass and keeps only the
    input of each block. 4-bit layers are not affected.

    Measured with Axolotl on eight layers of real width: Mistral 7B, two rows of 2,048 tokens, non-reentrant, allocated
    6,719 MiB; 6,721 was predicted, and 4,160 with reentrant checkpointing. Llama 3 8B, two rows of 4,096 tokens,
    reentrant, allocated 16,644 MiB; 16,643 was predicted, and 21,764 with non-reentrant. All layers of a model were not
    measured.
    """
    checkpoints = run.savings.gradient_checkpointing and not run.savings.checkpointing_reentrant
    if run.loading.quantization != "8bit" or not checkpoints:
        return
    micro, length = run.batch.micro_batch_size, run.shapes.sequence_len
    yield Hit(
        field="checkpointing_reentrant",
        message=(
            f"every 8-bit layer keeps its input of {micro} × {length} = {micro * length} tokens until backward: "
            "non-reentrant checkpointing does not drop what bitsandbytes stores"
        ),
        change=changes.reentrant_checkpointing(run),
    )
