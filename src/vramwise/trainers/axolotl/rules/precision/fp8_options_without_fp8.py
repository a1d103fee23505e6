"""fp8-options-without-fp8"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_GATHER = "fp8_enable_fsdp_float8_all_gather"


@rule(
    id="fp8-options-without-fp8",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8_config:\n  recipe: rowwise\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\nfp8_config:\n  recipe: rowwise\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 is configured but not switched on.

    `fp8_config` without `fp8: true` is refused by Axolotl. `fp8_enable_fsdp_float8_all_gather` without it is not
    refused but read by nobody: training and all-gathers run in bf16.

    Add `fp8: true`, or remove the options.
    """
    if run.config.get("fp8"):
        return
    if run.config.get("fp8_config") is not None:
        message = "fp8_config is set but fp8 is not true: Axolotl refuses the file"
        fix = unsafe("Train without fp8: remove fp8_config", delete_key("fp8_config"))
        yield Hit(key="fp8_config", message=message, fix=fix)
    if run.config.get(_GATHER):
        message = f"{_GATHER} has no effect while fp8 is not true: weights are gathered in 16 bit"
        fix = safe("Remove what nobody reads", delete_key(_GATHER))
        yield Hit(key=_GATHER, message=message, fix=fix, severity=Severity.WARNING)
