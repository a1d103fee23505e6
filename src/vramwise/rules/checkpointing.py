"""Rules for every trainer about gradient checkpointing, or what is kept for the backward pass without it."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="checkpointing-unset",
    severity=Severity.INFO,
    bad="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\ngradient_checkpointing: true\n",
    beyond_trainer="It is easy to assume the opposite default: most examples set the key.",
)
def checkpointing_unset(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Gradient checkpointing is off because it is not set.

    Without it, every layer keeps its activations until the backward pass; they grow with micro-batch × length ×
    layers. With `gradient_checkpointing: true`, a layer keeps only its input and recomputes the rest in the backward
    pass: same result, less memory, about one more forward pass of time. Set `gradient_checkpointing: false` if you
    want it off.
    """
    field = "gradient_checkpointing"
    origin = run.origins[field]
    written = origin.kind != "default" or origin.place is not None
    change = changes.checkpoint_activations(run)
    if written or change is None:
        return
    micro, length = run.batch.micro_batch_size, run.shapes.sequence_len
    yield Hit(
        field=field,
        message=(
            f"gradient checkpointing is off (not set): every layer keeps activations for {micro} × {length} = "
            f"{micro * length} tokens until backward"
        ),
        change=change,
        by_request=True,
    )


@rule(
    id="int8-keeps-inputs",
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
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
def int8_keeps_inputs(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Non-reentrant checkpointing saves little on an 8-bit base.

    bitsandbytes (0.50.2, `MatMul8bitLt`) stores the input of each 8-bit layer in the autograd context itself, not with
    `save_for_backward`. Non-reentrant checkpointing only drops tensors that are saved that way, so the inputs of all
    layers stay until the backward pass. Reentrant checkpointing builds no graph in the forward pass and keeps only the
    input of each block. 4-bit layers are not affected.

    Measured with all 32 layers of a Llama 3 8B shape and the settings of Axolotl's `llama-3/lora-8b.yml` (two rows of
    4,096 tokens, outliers in 7 columns as in trained weights), allocated and reserved:

    | run | measured, MiB | predicted, MiB |
    |---|---|---|
    | Axolotl 0.21, non-reentrant (its default) | 46,168 / 50,198 | 46,150 / 50,498 |
    | Axolotl 0.21, `use_reentrant: true` | 32,834 / 36,174 | 32,834 / 36,154 |
    | Axolotl 0.18, reentrant (the default up to 0.20) | 32,834 / 35,456 | 32,834 / 35,494 |

    Random weights have outliers in many more columns, which bitsandbytes keeps as well: 57,658 MiB reserved are
    predicted for the first run with such weights.
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
