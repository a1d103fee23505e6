"""fp8-checkpointing-slow"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity, join_key

_KEY = "fsdp_config.activation_checkpointing"


@rule(
    id="fp8-checkpointing-slow",
    severity=Severity.WARNING,
    topic="precision",
    bad="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n",
    good="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: false\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 with FSDP's activation checkpointing can be slower than bf16.

    Checkpointing runs each block's forward pass a second time, and in fp8 that repeats the scaling and casting of every
    input and weight as well. The repeated casts can cost more than the fp8 products save.

    Turn FSDP's activation checkpointing off if the activations fit, or train in bf16.
    """
    if run.precision.compute != "fp8" or run.config.get(_KEY) is not True:
        return
    yield Hit(
        key=_KEY,
        message=(
            "fp8 with FSDP activation_checkpointing casts every block's inputs and weights twice: it may be slower "
            "than bf16"
        ),
        fix=unsafe("Keep activations: activation_checkpointing false", set_key(join_key(run.config.path(_KEY)), False)),
    )
