"""fsdp-size-wrap-without-size"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.remedies import written_key
from vramwise.types import RunSpec, Severity

_POLICY = "fsdp_config.auto_wrap_policy"
_SIZE = "fsdp_config.min_num_params"
_TORCH_DEFAULT = 100_000_000  # torch's size_based_auto_wrap_policy


@rule(
    id="fsdp-size-wrap-without-size",
    severity=Severity.ERROR,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\n"
        "fsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 100000000\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP wraps modules by size, and no size is given.

    `auto_wrap_policy: SIZE_BASED_WRAP` shards every module above `min_num_params` parameters as a unit; Axolotl stops
    without the number. The unit is what is gathered at once: the larger, the more memory at the peak.
    TRANSFORMER_BASED_WRAP takes the model's layers as units and needs no number.
    """
    if run.config.get(_POLICY) == "SIZE_BASED_WRAP" and run.config.get(_SIZE) is None:
        yield Hit(
            key=_POLICY,
            message="auto_wrap_policy SIZE_BASED_WRAP without min_num_params: Axolotl stops",
            fix=unsafe(
                f"Wrap modules from {_TORCH_DEFAULT} parameters on, torch's own default",
                insert_key(written_key(run, _SIZE), _TORCH_DEFAULT, beside=written_key(run, _POLICY)),
            ),
        )
