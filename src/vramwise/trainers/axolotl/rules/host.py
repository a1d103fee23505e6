"""Axolotl's own rules about the host: its memory, data loading, and what is offloaded to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
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
    bad="sequence_len: 65536\nmicro_batch_size: 4\nsample_packing: true\n",
    good=(
        "sequence_len: 65536\nmicro_batch_size: 4\nsample_packing: true\n"
        "dataloader_num_workers: 1\ndataloader_prefetch_factor: 8\n"
    ),
    options="--gpus 8",
    beyond_trainer="Axolotl fills in these values without warning.",
)
def prefetch_host_memory(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
        yield _prefetch_hit(run, message, Severity.INFO)
        return
    size_bytes = batches * run.batch.micro_batch_size * run.shapes.sequence_len * _TENSORS * _INT64
    if size_bytes > GIB:
        per_batch = (
            f"micro {run.batch.micro_batch_size} × sequence_len {run.shapes.sequence_len} × {_TENSORS} × {_INT64} bytes"
        )
        message = f"{ahead} of {per_batch} = {gib(size_bytes)} of host memory with the data loader's defaults"
        too_much = size_bytes * _SHARE > _host_bytes(run) * run.batch.gpus
        yield _prefetch_hit(run, message, None if too_much else Severity.INFO)


def _host_bytes(run: RunSpec) -> int:
    """The memory that even the smallest hosts have per GPU."""
    card = 0 if run.target.gpu is None else run.target.gpu.memory_bytes
    return max(_HOST_BYTES, int(_OF_CARD * card))


def _prefetch_hit(run: RunSpec, message: str, severity: Severity | None) -> Hit:
    change = changes.fewer_workers(run)
    return Hit(message, _KEYS[2], change=change, severity=severity)


layer_offloading_without_adapter = row(
    id="layer-offloading-without-adapter",
    severity=Severity.WARNING,
    text="""Layer offloading has no effect in a full fine-tune.

    `layer_offloading` moves the frozen weights of the decoder layers to host memory and loads them layer by layer. A
    full fine-tune has no frozen weights, so everything stays on the GPU and only the overhead of the hooks remains.

    Train an adapter to use it. For a full fine-tune, offload with FSDP (`offload_params`) or DeepSpeed, or reduce
    activations with gradient checkpointing and `activation_offloading`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nlayer_offloading: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlayer_offloading: true\n",
    beyond_trainer="Axolotl accepts it and offloads nothing.",
    when=lambda run: (
        run.savings.layer_offloading and not run.adapter.kind and not run.config.get("unfrozen_parameters")
    ),
    key="layer_offloading",
    message="layer_offloading has no effect: it moves only frozen weights, and a full fine-tune has none",
    fix=safe("Turn layer_offloading off, which has no effect", set_key("layer_offloading", False)),
)

memory_limits_conflict = row(
    id="memory-limits-conflict",
    text="""Both `max_memory` and `gpu_memory_limit` are set.

    Both limit how much of the model may be placed on each GPU while it loads. `gpu_memory_limit` is one figure in GiB
    for all GPUs (the rest goes to host memory); `max_memory` has one figure per device. Axolotl refuses both together.
    Neither limits what training itself allocates.

    Keep one.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\ngpu_memory_limit: 20\nmax_memory:\n  0: 20GiB\n  cpu: 64GiB\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngpu_memory_limit: 20\n",
    when=lambda run: run.config.get("gpu_memory_limit") is not None and run.config.get("max_memory") is not None,
    key="max_memory",
    message=lambda run: (
        f"Axolotl refuses gpu_memory_limit {run.config.get('gpu_memory_limit')} together with max_memory"
    ),
    fix=unsafe("Keep gpu_memory_limit", delete_key("max_memory")),
)

prefetch_without_workers = row(
    id="prefetch-without-workers",
    text="""A prefetch factor is set without data-loader workers.

    Worker processes prefetch the batches. Setting `dataloader_prefetch_factor` turns off all of Axolotl's data-loader
    defaults, including the workers, so `dataloader_num_workers` is 0 unless you set it too. transformers refuses a
    prefetch factor without workers when it builds the trainer, after tokenising.
    """,
    bad="micro_batch_size: 2\ndataloader_prefetch_factor: 8\n",
    good="micro_batch_size: 2\ndataloader_num_workers: 1\ndataloader_prefetch_factor: 8\n",
    beyond_trainer="Axolotl accepts it; transformers raises a ValueError after the data is prepared.",
    when=lambda run: (
        run.config.get("dataloader_prefetch_factor") is not None and not run.config.get("dataloader_num_workers")
    ),
    key="dataloader_prefetch_factor",
    message=lambda run: (
        f"transformers refuses dataloader_prefetch_factor {run.config.get('dataloader_prefetch_factor')} with "
        "dataloader_num_workers 0"
    ),
    fix=safe("Use one worker", insert_key("dataloader_num_workers", 1, beside="dataloader_prefetch_factor")),
)

streaming_group_by_length = row(
    id="streaming-group-by-length",
    severity=Severity.WARNING,
    text="""Grouping by length defeats streaming.

    `pretraining_dataset` streams: samples are fetched during training. Grouping them by length needs every length in
    advance, so the whole dataset is downloaded first, which streaming is meant to avoid.

    Remove `group_by_length`: concatenated pretraining rows are full anyway. This changes the order of the samples.
    """,
    bad="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\ngroup_by_length: true\n",
    good="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\n",
    when=lambda run: run.config.get("pretraining_dataset") and run.shapes.group_by_length,
    key="group_by_length",
    message="group_by_length with pretraining_dataset downloads the whole stream before the first step",
    fix=unsafe("Delete group_by_length", delete_key("group_by_length")),
)


@rule(
    id="ple-offload-misused",
    also=(Severity.WARNING,),
    bad="base_model: google/gemma-3n-E2B-it\nadapter: lora\nple_cpu_offload: true\n",
    good="base_model: google/gemma-3n-E2B-it\nadapter: qlora\nload_in_4bit: true\nple_cpu_offload: true\n",
)
def ple_offload_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`ple_cpu_offload` with settings that do not support it.

    This option keeps a model's large per-layer embedding table in host memory. FSDP and DeepSpeed place every parameter
    themselves and would gather it. A model that bitsandbytes has not quantised is moved to the GPU as a whole. Axolotl
    refuses the option under FSDP and DeepSpeed, and accepts it only with `qlora` + `load_in_4bit` or `lora` +
    `load_in_8bit`.

    On several GPUs each process keeps its own copy, so the table needs host memory times the number of GPUs.
    """
    key, fix = "ple_cpu_offload", unsafe("Keep the table on the GPU", delete_key("ple_cpu_offload"))
    if not run.config.get(key):
        return
    for other in ("fsdp_config", "fsdp", "deepspeed"):
        if run.config.get(other) is not None:
            yield Hit(f"Axolotl refuses {key} with {other}, which places every parameter itself", key, fix)
    loaded = {"qlora": "load_in_4bit", "lora": "load_in_8bit"}.get(run.adapter.kind or "")
    if not loaded or not run.config.get(loaded):
        yield Hit(f"Axolotl accepts {key} only with qlora and load_in_4bit or lora and load_in_8bit", key, fix)
    elif run.sharding.kind == "ddp":
        yield Hit(
            f"{key} on {run.batch.gpus} GPUs is untested, and every process keeps its own table: {run.batch.gpus} "
            "copies in host memory",
            key,
            severity=Severity.WARNING,
        )
