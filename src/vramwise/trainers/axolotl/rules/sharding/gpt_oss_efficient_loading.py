"""gpt-oss-efficient-loading"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.remedies import written_key
from vramwise.types import RunSpec, Severity

_KEY = "fsdp_config.cpu_ram_efficient_loading"


@rule(
    id="gpt-oss-efficient-loading",
    severity=Severity.ERROR,
    topic="sharding",
    bad=(
        "base_model: openai/gpt-oss-20b\nmodel_quantization_config: Mxfp4Config\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n"
    ),
    good=(
        "base_model: openai/gpt-oss-20b\nmodel_quantization_config: Mxfp4Config\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: false\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An MXFP4 checkpoint (gpt-oss) is loaded with `cpu_ram_efficient_loading`.

    With `model_quantization_config: Mxfp4Config` the weights are unpacked while they are read, which has to happen on
    every rank; efficient loading reads them on rank 0 only. Axolotl stops. Off, loading needs more host memory and
    the training is the same.
    """
    if run.config.get("model_quantization_config") == "Mxfp4Config" and run.config.get(_KEY) is True:
        yield Hit(
            key=_KEY,
            message="cpu_ram_efficient_loading of an Mxfp4Config model under FSDP is not supported: Axolotl stops",
            fix=safe("Load on every rank", set_key(written_key(run, _KEY), False)),
        )
