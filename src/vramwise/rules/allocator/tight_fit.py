"""tight-fit"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.rules.room import is_tight
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib, mib


@rule(
    id="tight-fit",
    severity=Severity.WARNING,
    lighter_at_full_rows=True,
    topic="allocator",
    needs={"memory"},
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 3\n"
        "bf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "lora_mlp_kernel: false\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "bf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "attn_implementation: flash_attention_2\n"
    ),
    options="--gpu 26GB",
    beyond_trainer="The trainer does not check memory.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The run is predicted to fit, with almost nothing to spare.

    Less than 5 % of the card is free at the peak, or the run fits only because the allocator releases cached blocks
    and retries, which costs time. A desktop, another process or a longer sample can use that much, and the prediction
    itself has an error. Lower the micro-batch and raise accumulation, or save memory elsewhere.

    If row lengths depend on the data and are unknown, every row is assumed to be full. With expandable segments the
    run fits even then, and shorter rows leave more room, so the finding is only a note. Use `--data` to read the
    lengths. Rows with images have no such bound, so they get a warning.
    """
    if memory is None or not is_tight(memory) or not memory.capacity_bytes:
        return
    if memory.mixed_rows_bytes > memory.capacity_bytes:  # which is worse, and has its own finding
        return
    spare = memory.capacity_bytes - memory.highest_reserved_bytes
    if memory.retries:
        yield Hit(
            field="micro_batch_size",
            message=(
                f"predicted to fit in {gib(memory.capacity_bytes)} only by releasing cached blocks ({memory.retries} "
                "retries): each costs time, and with slightly more memory the run fails"
            ),
        )
    else:
        yield Hit(
            field="micro_batch_size",
            message=(
                f"predicted to reserve {gib(memory.highest_reserved_bytes)} of {gib(memory.capacity_bytes)}: "
                f"{mib(spare)} to spare, which another process or a longer sample can use up"
            ),
        )
