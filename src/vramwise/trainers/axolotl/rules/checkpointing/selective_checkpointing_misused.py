"""selective-checkpointing-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_KEY = "selective_checkpointing"
_MATMULS = ("aten::mm", "aten::addmm", "aten::matmul", "aten::bmm")


@rule(
    id="selective-checkpointing-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="checkpointing",
    bad="base_model: meta-llama/Llama-3.2-1B\nselective_checkpointing: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nselective_checkpointing: true\ngradient_checkpointing: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Selective checkpointing with settings that it does not support.

    Selective checkpointing saves chosen results, such as attention's, and recomputes the rest. It needs non-reentrant
    gradient checkpointing and does not work with an offloader that replaces checkpointing (`hidden_states` is fine).
    With an adapter it cannot save the outputs of matrix products, because the adapter's contribution is added in place.
    Since 0.20 this applies only to the fused LoRA kernels; before, it applied to PEFT too. Axolotl stops in each of
    these cases. The combination with torch_compile is untested.
    """
    if not run.config.get(_KEY):
        return
    if not run.savings.gradient_checkpointing:
        yield Hit(
            key=_KEY,
            message="Axolotl refuses selective_checkpointing while gradient_checkpointing is off",
            change=changes.turn_checkpointing_on(run),
        )
    if run.config.get("gradient_checkpointing_kwargs.use_reentrant"):
        yield Hit(
            key="gradient_checkpointing_kwargs.use_reentrant",
            message="Axolotl refuses selective_checkpointing with use_reentrant: true",
            change=changes.nonreentrant_checkpointing(run),
        )
    yield from _offloading(run)
    yield from _saved_matmuls(run)
    if run.kernels.torch_compile:
        yield Hit(
            severity=Severity.WARNING,
            key="torch_compile",
            message="selective_checkpointing with torch_compile is untested: it hooks into uncompiled checkpointing",
        )


def _offloading(run: RunSpec) -> Iterator[Hit]:
    if run.savings.activation_offloading not in ("stream", "legacy"):
        return
    edit = insert_key("activation_offloading", "hidden_states", beside=_KEY)
    written = str(run.config.get("activation_offloading", "true")).lower()
    yield Hit(
        key="activation_offloading",
        message=f"Axolotl refuses {_KEY} with activation_offloading: {written}, which replaces checkpointing",
        fix=unsafe("Offload only the layers' inputs: hidden_states", edit)
        if "activation_offloading" in run.config
        else None,
    )


def _saved_matmuls(run: RunSpec) -> Iterator[Hit]:
    saved = run.config.get(f"{_KEY}.save")
    by_kernels = schema_of(run).since("0.20.0")
    if not isinstance(saved, list) or not (run.adapter.lora_kernels if by_kernels else run.adapter.kind):
        return
    bad = [str(name) for name in saved if name != "attention" and any(str(name) in op for op in _MATMULS)]
    if not bad:
        return
    who = "the fused LoRA kernels change" if by_kernels else f"adapter {run.adapter.kind} changes"
    kept = [name for name in saved if str(name) not in bad] or ["attention"]
    yield Hit(
        key=f"{_KEY}.save",
        message=f"Axolotl refuses {_KEY}.save {', '.join(bad)}: {who} matrix products in place",
        fix=unsafe(f"Save only {', '.join(map(str, kept))}", set_key(f"{_KEY}.save", kept)),
    )
