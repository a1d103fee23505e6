"""prefetch-host-memory"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import GIB, gib
from vramwise.variants import changes

_KEYS = ("dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor")
_PREFETCH = 256  # batches for each worker
_TENSORS = 3  # input_ids, labels, and attention_mask or position_ids
_INT64 = 8
# Hosts have at least this much per GPU, and those with large cards at least 1.5 times the card's memory
# (servers of eight H100s: 1 TB and more); a quarter of it for waiting batches is too much.
_HOST_BYTES = 32 * GIB
_OF_CARD = 1.5
_SHARE = 4
# Processors, models and plugins whose samples are sounds.
_AUDIO = re.compile(r"voxtral|whisper|audio|parakeet|moonshine|granite-?speech", re.IGNORECASE)


@rule(
    id="prefetch-host-memory",
    explains={"host-memory"},
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    topic="host",
    bad="sequence_len: 65536\nmicro_batch_size: 4\nsample_packing: true\n",
    good=(
        "sequence_len: 65536\nmicro_batch_size: 4\nsample_packing: true\n"
        "dataloader_num_workers: 1\ndataloader_prefetch_factor: 8\n"
    ),
    options="--gpus 8",
    beyond_trainer="Axolotl fills in these values without warning.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The default data loader keeps very many batches in host memory.

    If none of `dataloader_num_workers`, `dataloader_pin_memory` and `dataloader_prefetch_factor` is set, Axolotl starts
    as many workers as there are GPUs, in every process. Each worker prefetches 256 batches into pinned memory. A batch
    of text takes micro × sequence_len × 3 tensors × 8 bytes: this is small on one GPU, but grows with the square of the
    number of GPUs. Above 1 GiB the finding is a note. It is a warning above a quarter of the memory that the smallest
    hosts have per GPU: 32 GiB, or 1.5 times the memory of the card if that is more.

    A multimodal batch also holds the pixels of its images or the features of its sounds. Their size depends on the
    data, so the finding is a note.

    Setting any of the three keys turns all three defaults off. Prefetching a few batches is enough, and the data and
    its order stay the same. The calculation assumes that all GPUs are on one host.
    """
    if run.objective.rl or any(run.config.get(key) is not None for key in _KEYS):
        return
    batches = run.batch.gpus * run.batch.gpus * _PREFETCH
    ahead = f"gpus {run.batch.gpus} × workers {run.batch.gpus} × prefetch {_PREFETCH} = {batches:,} batches"
    if run.config.get("processor_type"):
        held = "sounds" if _AUDIO.search(f"{run.base_model} {run.config.get('processor_type')}") else "images"
        message = f"{ahead} of micro {run.batch.micro_batch_size} wait in host memory with all their {held}"
        yield _hit(run, message, Severity.INFO)
        return
    size_bytes = batches * run.batch.micro_batch_size * run.shapes.sequence_len * _TENSORS * _INT64
    if size_bytes > GIB:
        per_batch = (
            f"micro {run.batch.micro_batch_size} × sequence_len {run.shapes.sequence_len} × {_TENSORS} × {_INT64} bytes"
        )
        message = f"{ahead} of {per_batch} = {gib(size_bytes)} of host memory with the data loader's defaults"
        too_much = size_bytes * _SHARE > _host_bytes(run) * run.batch.gpus
        yield _hit(run, message, None if too_much else Severity.INFO)


def _host_bytes(run: RunSpec) -> int:
    """The memory that even the smallest hosts have per GPU."""
    card = 0 if run.target.gpu is None else run.target.gpu.memory_bytes
    return max(_HOST_BYTES, int(_OF_CARD * card))


def _hit(run: RunSpec, message: str, severity: Severity | None) -> Hit:
    change = changes.fewer_workers(run)
    return Hit(key=_KEYS[2], message=message, change=change, severity=severity)
