"""Axolotl's own rules of one condition and one sentence: precision."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity, join_key

_RECOMPUTED = "fsdp_config.activation_checkpointing"
_SKIP_UPCAST = "embeddings_skip_upcast"

_row = partial(row, topic="precision")

fp8_checkpointing_slow = _row(
    id="fp8-checkpointing-slow",
    severity=Severity.WARNING,
    text="""fp8 with FSDP's activation checkpointing can be slower than bf16.

    Checkpointing runs each block's forward pass a second time, and in fp8 that repeats the scaling and casting of every
    input and weight as well. The repeated casts can cost more than the fp8 products save.

    Turn FSDP's activation checkpointing off if the activations fit, or train in bf16.
    """,
    bad="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n",
    good="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: false\n",
    when=lambda run: run.precision.compute == "fp8" and run.config.get(_RECOMPUTED) is True,
    key=_RECOMPUTED,
    message=(
        "fp8 with FSDP activation_checkpointing casts every block's inputs and weights twice: it may be slower than "
        "bf16"
    ),
    fix=lambda run: unsafe(
        "Keep activations: activation_checkpointing false", set_key(join_key(run.config.path(_RECOMPUTED)), False)
    ),
)


def _upcast_anyway(run: RunSpec) -> str | None:
    if schema_of(run).since("0.20.0"):
        return "on a base that is not quantised" if run.loading.quantization is None else None
    if run.sharding.kind.startswith("fsdp"):
        return "under FSDP"
    return None if run.config.get("load_in_4bit") else "without load_in_4bit"


skip_upcast_ignored = _row(
    id="skip-upcast-ignored",
    severity=Severity.INFO,
    text="""`embeddings_skip_upcast` where Axolotl does not read it.

    While it prepares a model, Axolotl holds embeddings and head in fp32 for a moment; with a large vocabulary that can
    be the peak of loading. `embeddings_skip_upcast` leaves them in 16 bit: up to 0.19 only with `load_in_4bit` and
    without FSDP, since 0.20 with every quantised base, where it is on by itself. In a full fine-tune it has no effect.
    """,
    bad="adapter: lora\nembeddings_skip_upcast: true\n",
    good="adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: true\n",
    beyond_trainer="Axolotl reads the key only where a base is quantised, and says nothing elsewhere.",
    when=lambda run: run.config.get(_SKIP_UPCAST) and _upcast_anyway(run),
    key=_SKIP_UPCAST,
    message=lambda run: f"{_SKIP_UPCAST} has no effect {_upcast_anyway(run)}",
    fix=safe("Remove what nobody reads", delete_key(_SKIP_UPCAST)),
)
