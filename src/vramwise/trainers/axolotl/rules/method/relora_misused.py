"""relora-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import lists_foreign_plugin
from vramwise.types import RunSpec, Severity


@rule(
    id="relora-misused",
    severity=Severity.ERROR,
    topic="method",
    bad="adapter: lora\nrelora: true\njagged_restart_steps: 100\nlr_scheduler: one_cycle\n",
    good="adapter: lora\nrelora: true\njagged_restart_steps: 100\nlr_scheduler: cosine\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """ReLoRA without what it needs, or with what it excludes.

    ReLoRA merges the adapter into the base every `jagged_restart_steps` steps and starts a new one. Axolotl refuses it
    without that key or without a `lora`/`qlora` adapter, under FSDP and DeepSpeed (the merge needs whole weights), with
    the `one_cycle` schedule (which cannot restart) and with fused MLP modules (which cannot be merged into).
    """
    if not run.config.get("relora"):
        return
    if not run.config.get("jagged_restart_steps"):
        message = "relora without jagged_restart_steps: there is no step at which to merge, Axolotl refuses the file"
        yield Hit(key="relora", message=message)
    if run.adapter.kind not in ("lora", "qlora", "mora") and not (run.adapter.kind and lists_foreign_plugin(run)):
        message = f"relora with adapter {run.adapter.kind or 'unset'}: it needs lora or qlora, Axolotl refuses the file"
        yield Hit(key="adapter", near=("relora",), message=message)
    for key in ("fsdp", "fsdp_config", "deepspeed"):
        if run.config.get(key):
            yield Hit(key=key, message=f"relora with {key}: the merge needs whole weights, Axolotl refuses the file")
    if run.config.get("lr_scheduler") == "one_cycle":
        fix = unsafe("Use the cosine schedule", set_key("lr_scheduler", "cosine"))
        message = "relora with lr_scheduler: one_cycle: the schedule cannot restart, Axolotl refuses the file"
        yield Hit(key="lr_scheduler", message=message, fix=fix)
    if run.config.get("flash_attn_fuse_mlp"):
        fix = unsafe("Leave the MLP unfused", delete_key("flash_attn_fuse_mlp"))
        message = "relora with flash_attn_fuse_mlp: fused modules cannot be merged into, Axolotl refuses the file"
        yield Hit(key="flash_attn_fuse_mlp", message=message, fix=fix)
