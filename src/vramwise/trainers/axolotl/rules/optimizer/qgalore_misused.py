"""qgalore-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.optimizer_sharding import unsupported_sharding
from vramwise.trainers.axolotl.remedies import written_key
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_NAME = "q_galore_adamw8bit"
_ORIG_PARAMS = "fsdp_config.use_orig_params"


@rule(
    id="qgalore-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="optimizer",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: q_galore_adamw8bit\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\noptimizer: q_galore_adamw8bit\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n  use_orig_params: true\n"
    ),
    options="--gpus 2 --with axolotl==0.19.0",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Q-GaLore where it cannot work: an adapter, DeepSpeed, FSDP1, or FSDP2 without `use_orig_params`.

    Q-GaLore projects the gradients of full weight matrices to a low rank and keeps its state per parameter. An adapter
    leaves no full matrices to train; DeepSpeed and FSDP1 flatten them; under FSDP2 it needs `use_orig_params: true` up
    to Axolotl 0.19. Axolotl stops in each case. In fp32 the run works, but most of the memory that was saved is spent
    on the weights.
    """
    if run.optimizer.name != _NAME:
        return
    if run.adapter.kind:
        yield Hit(
            key="adapter",
            message=(
                f"optimizer {_NAME} trains full weight matrices, adapter {run.adapter.kind} leaves none: Axolotl stops"
            ),
        )
    yield from unsupported_sharding(run, "its projections need whole matrices (DDP or FSDP2)")
    needs_orig_params = run.sharding.kind == "fsdp2" and not schema_of(run).since("0.20.0")
    if needs_orig_params and run.config.get(_ORIG_PARAMS) is not True:
        key = written_key(run, _ORIG_PARAMS)
        yield Hit(
            key=_ORIG_PARAMS,
            near=("fsdp_config",),
            message=f"optimizer {_NAME} under FSDP2 needs use_orig_params: true: Axolotl stops",
            fix=unsafe("Keep the original parameters", insert_key(key, True, beside=_beside(run))),
        )
    if run.precision.compute == "fp32":
        yield Hit(
            severity=Severity.WARNING,
            key="bf16",
            near=("optimizer",),
            message=f"optimizer {_NAME} in fp32: the weights take 4 bytes a parameter, more than the optimizer saves",
        )


def _beside(run: RunSpec) -> str:
    block = run.config.get("fsdp_config")
    return written_key(run, f"fsdp_config.{next(iter(block))}") if block else "fsdp_config"
