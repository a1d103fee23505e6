"""lora-kernels-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.resolve.lora_kernels import KERNELS, LINEAR_KERNELS, version_unseen
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="lora-kernels-unsupported",
    severity=Severity.ERROR,
    topic="method",
    bad="adapter: lora\nload_in_8bit: true\nlora_mlp_kernel: true\nlora_qkv_kernel: true\n",
    good="adapter: lora\nload_in_8bit: true\nlora_mlp_kernel: false\nlora_qkv_kernel: false\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Fused LoRA kernels are on in a run that they do not support.

    The `lora_*_kernel` keys fuse LoRA with the projections of attention and MLP. They cannot read 8-bit base weights,
    do not support the layers of a model's own remote code, and cannot access parameters that FSDP1 has flattened.
    Axolotl refuses the file in these cases (FSDP1 exists only up to 0.19). Up to 0.19 it looks for `fsdp_version: 2`
    only at the top level: if it is inside `fsdp_config`, the kernels are refused as under FSDP1. If the kernels are
    unset, Axolotl turns them on by default, even for some models that they do not support: see
    lora-kernels-unknown-attention.

    Set them to false, or remove them. The result is the same; the fused kernels are faster and keep fewer activations.
    """
    for kernels, why in _conflicts(run):
        on = [kernel for kernel in kernels if run.config.get(kernel)]
        if on:
            fix = safe("Turn the kernels off", *(set_key(kernel, False) for kernel in on))
            yield Hit(key=on[0], message=f"Axolotl refuses {', '.join(on)} with {why}", fix=fix)
    yield from _version_not_seen(run)


def _conflicts(run: RunSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    if run.adapter.kind == "lora" and run.config.get("load_in_8bit"):
        yield LINEAR_KERNELS, "load_in_8bit: the kernels cannot read 8-bit weights"
    if run.config.get("trust_remote_code") and not _brings_kernels(run):
        yield LINEAR_KERNELS, "trust_remote_code: the kernels do not support the model's own layers"
    if run.batch.gpus > 1 and run.sharding.kind == "fsdp1" and run.config.get("fsdp_config") is not None:
        yield KERNELS, f"FSDP1 on {run.batch.gpus} GPUs: the kernels cannot access flattened parameters"


def _brings_kernels(run: RunSpec) -> bool:
    """Since 0.21 Axolotl knows the attention of Nemotron's diffusion models, whose code is remote."""
    name = (run.base_model or "").lower()
    return schema_of(run).since("0.21.0") and "nemotron" in name and "diffusion" in name


def _version_not_seen(run: RunSpec) -> Iterator[Hit]:
    on = [kernel for kernel in KERNELS if run.config.get(kernel)]
    if not on or not version_unseen(run):
        return
    yield Hit(
        key=on[0],
        message=(
            f"Axolotl refuses {', '.join(on)} with fsdp_version 2 inside fsdp_config: its check looks only at the top "
            "level and assumes FSDP1"
        ),
        fix=safe("Set fsdp_version: 2 at the top level", insert_key("fsdp_version", 2, beside="fsdp_config")),
    )
