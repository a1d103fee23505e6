"""ple-offload-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "ple_cpu_offload"


@rule(
    id="ple-offload-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="host",
    bad="base_model: google/gemma-3n-E2B-it\nadapter: lora\nple_cpu_offload: true\n",
    good="base_model: google/gemma-3n-E2B-it\nadapter: qlora\nload_in_4bit: true\nple_cpu_offload: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`ple_cpu_offload` where the table cannot stay in host memory.

    It keeps a model's large per-layer embedding table in host memory. FSDP and DeepSpeed place every parameter
    themselves and would gather it; a model that bitsandbytes has not quantised is moved to the GPU whole. Axolotl
    refuses it under FSDP and DeepSpeed and takes it only with `qlora` + `load_in_4bit` or `lora` + `load_in_8bit`.

    On several GPUs each process keeps a copy of its own: host memory for the table times the number of GPUs.
    """
    if not run.config.get(_KEY):
        return
    fix = unsafe("Keep the table on the GPU", delete_key(_KEY))
    for key in ("fsdp_config", "fsdp", "deepspeed"):
        if run.config.get(key) is not None:
            message = f"{_KEY} with {key}: it places every parameter itself, Axolotl refuses the file"
            yield Hit(key=_KEY, message=message, fix=fix)
    quantised = (run.adapter.kind == "qlora" and run.config.get("load_in_4bit")) or (
        run.adapter.kind == "lora" and run.config.get("load_in_8bit")
    )
    if not quantised:
        message = f"{_KEY} needs qlora with load_in_4bit or lora with load_in_8bit: Axolotl refuses the file"
        yield Hit(key=_KEY, message=message, fix=fix)
    elif run.sharding.kind == "ddp":
        message = (
            f"{_KEY} on {run.batch.gpus} GPUs: every process keeps its own table, {run.batch.gpus} copies in host "
            "memory; untested "
            "there"
        )
        yield Hit(key=_KEY, message=message, severity=Severity.WARNING)
