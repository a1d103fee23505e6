"""Axolotl's own rules of one condition and one sentence: host."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.types import RunSpec, Severity

_row = partial(row, topic="host")

layer_offloading_without_adapter = _row(
    id="layer-offloading-without-adapter",
    severity=Severity.WARNING,
    text="""Layer offloading in a full fine-tune offloads nothing.

    `layer_offloading` moves the frozen weights of the decoder layers to host memory and streams them in layer by layer.
    A full fine-tune has no frozen weights: everything stays on the GPU, and only the hooks around each layer remain.

    Train an adapter to use it. For a full fine-tune, offload with FSDP (`offload_params`) or DeepSpeed, or save
    activations with gradient checkpointing and `activation_offloading`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nlayer_offloading: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlayer_offloading: true\n",
    beyond_trainer="Axolotl accepts it and offloads nothing.",
    when=lambda run: (
        run.savings.layer_offloading and not run.adapter.kind and not run.config.get("unfrozen_parameters")
    ),
    key="layer_offloading",
    message="layer_offloading moves only frozen weights, and a full fine-tune has none: nothing is offloaded",
    fix=safe("Switch off what does nothing", set_key("layer_offloading", False)),
)

memory_limits_conflict = _row(
    id="memory-limits-conflict",
    text="""`max_memory` and `gpu_memory_limit` at once.

    Both say how much of the model may be placed on each GPU while it loads: `gpu_memory_limit` one figure for all of
    them (in GiB, the rest goes to host memory), `max_memory` one for each device. Axolotl refuses both together.
    Neither limits what training itself allocates.

    Keep one.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\ngpu_memory_limit: 20\nmax_memory:\n  0: 20GiB\n  cpu: 64GiB\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngpu_memory_limit: 20\n",
    when=lambda run: run.config.get("gpu_memory_limit") is not None and run.config.get("max_memory") is not None,
    key="max_memory",
    message=lambda run: (
        f"gpu_memory_limit {run.config.get('gpu_memory_limit')} and max_memory are both set: Axolotl takes one of "
        "them and refuses the file"
    ),
    fix=unsafe("Keep gpu_memory_limit", delete_key("max_memory")),
)

prefetch_without_workers = _row(
    id="prefetch-without-workers",
    text="""A prefetch factor without data-loader workers.

    Batches are prefetched by worker processes. Writing `dataloader_prefetch_factor` turns Axolotl's own data-loader
    defaults off, workers included, so `dataloader_num_workers` is 0 unless it is written too. transformers refuses a
    prefetch factor without workers when the trainer is built, after tokenising.
    """,
    bad="micro_batch_size: 2\ndataloader_prefetch_factor: 8\n",
    good="micro_batch_size: 2\ndataloader_num_workers: 1\ndataloader_prefetch_factor: 8\n",
    beyond_trainer="Axolotl accepts it; transformers' TrainingArguments raise a ValueError after the data is prepared.",
    when=lambda run: (
        run.config.get("dataloader_prefetch_factor") is not None and not run.config.get("dataloader_num_workers")
    ),
    key="dataloader_prefetch_factor",
    message=lambda run: (
        f"dataloader_prefetch_factor {run.config.get('dataloader_prefetch_factor')} with dataloader_num_workers 0: "
        "transformers refuses to prefetch without a worker"
    ),
    fix=safe("Use one worker", insert_key("dataloader_num_workers", 1, beside="dataloader_prefetch_factor")),
)

streaming_group_by_length = _row(
    id="streaming-group-by-length",
    severity=Severity.WARNING,
    text="""Grouping by length defeats streaming.

    `pretraining_dataset` streams: samples are fetched while training goes on. Sorting them into groups of equal length
    needs every length beforehand, so the whole dataset is downloaded first, which is what streaming was meant to avoid.

    Leave `group_by_length` out; concatenated pretraining rows are full anyway. The order of the samples changes.
    """,
    bad="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\ngroup_by_length: true\n",
    good="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\n",
    when=lambda run: run.config.get("pretraining_dataset") and run.shapes.group_by_length,
    key="group_by_length",
    message="group_by_length with pretraining_dataset: the stream is downloaded whole before the first step",
    fix=unsafe("Delete group_by_length", delete_key("group_by_length")),
)


_KEEP_TABLE = unsafe("Keep the table on the GPU", delete_key("ple_cpu_offload"))


def _placed(key: str) -> Case:
    message = f"ple_cpu_offload with {key}: it places every parameter itself, Axolotl refuses the file"
    return Case(when=lambda run: run.config.get(key) is not None, message=message, fix=_KEEP_TABLE)


def _quantised(run: RunSpec) -> object:
    key = {"qlora": "load_in_4bit", "lora": "load_in_8bit"}.get(run.adapter.kind or "")
    return key and run.config.get(key)


ple_offload_misused = _row(
    id="ple-offload-misused",
    also=(Severity.WARNING,),
    text="""`ple_cpu_offload` where the table cannot stay in host memory.

    It keeps a model's large per-layer embedding table in host memory. FSDP and DeepSpeed place every parameter
    themselves and would gather it; a model that bitsandbytes has not quantised is moved to the GPU whole. Axolotl
    refuses it under FSDP and DeepSpeed and takes it only with `qlora` + `load_in_4bit` or `lora` + `load_in_8bit`.

    On several GPUs each process keeps a copy of its own: host memory for the table times the number of GPUs.
    """,
    bad="base_model: google/gemma-3n-E2B-it\nadapter: lora\nple_cpu_offload: true\n",
    good="base_model: google/gemma-3n-E2B-it\nadapter: qlora\nload_in_4bit: true\nple_cpu_offload: true\n",
    when="ple_cpu_offload",
    key="ple_cpu_offload",
    cases=(
        *map(_placed, ("fsdp_config", "fsdp", "deepspeed")),
        Case(
            when=lambda run: not _quantised(run),
            message="ple_cpu_offload needs qlora with load_in_4bit or lora with load_in_8bit: Axolotl refuses the file",
            fix=_KEEP_TABLE,
        ),
        Case(
            when=lambda run: _quantised(run) and run.sharding.kind == "ddp",
            severity=Severity.WARNING,
            message=lambda run: (
                f"ple_cpu_offload on {run.batch.gpus} GPUs: every process keeps its own table, {run.batch.gpus} "
                "copies in host memory; untested there"
            ),
        ),
    ),
)
