"""Axolotl rules with one condition and one message: host."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.types import RunSpec, Severity

_row = partial(row, topic="host")

layer_offloading_without_adapter = _row(
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

memory_limits_conflict = _row(
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

prefetch_without_workers = _row(
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

streaming_group_by_length = _row(
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


_KEEP_TABLE = unsafe("Keep the table on the GPU", delete_key("ple_cpu_offload"))


def _placed(key: str) -> Case:
    message = f"Axolotl refuses ple_cpu_offload with {key}, which places every parameter itself"
    return Case(when=lambda run: run.config.get(key) is not None, message=message, fix=_KEEP_TABLE)


def _quantised(run: RunSpec) -> object:
    key = {"qlora": "load_in_4bit", "lora": "load_in_8bit"}.get(run.adapter.kind or "")
    return key and run.config.get(key)


ple_offload_misused = _row(
    id="ple-offload-misused",
    also=(Severity.WARNING,),
    text="""`ple_cpu_offload` with settings that do not support it.

    This option keeps a model's large per-layer embedding table in host memory. FSDP and DeepSpeed place every parameter
    themselves and would gather it. A model that bitsandbytes has not quantised is moved to the GPU as a whole. Axolotl
    refuses the option under FSDP and DeepSpeed, and accepts it only with `qlora` + `load_in_4bit` or `lora` +
    `load_in_8bit`.

    On several GPUs each process keeps its own copy, so the table needs host memory times the number of GPUs.
    """,
    bad="base_model: google/gemma-3n-E2B-it\nadapter: lora\nple_cpu_offload: true\n",
    good="base_model: google/gemma-3n-E2B-it\nadapter: qlora\nload_in_4bit: true\nple_cpu_offload: true\n",
    when="ple_cpu_offload",
    key="ple_cpu_offload",
    cases=(
        *map(_placed, ("fsdp_config", "fsdp", "deepspeed")),
        Case(
            when=lambda run: not _quantised(run),
            message="Axolotl accepts ple_cpu_offload only with qlora and load_in_4bit or lora and load_in_8bit",
            fix=_KEEP_TABLE,
        ),
        Case(
            when=lambda run: _quantised(run) and run.sharding.kind == "ddp",
            severity=Severity.WARNING,
            message=lambda run: (
                f"ple_cpu_offload on {run.batch.gpus} GPUs is untested, and every process keeps its own table: "
                f"{run.batch.gpus} copies in host memory"
            ),
        ),
    ),
)
