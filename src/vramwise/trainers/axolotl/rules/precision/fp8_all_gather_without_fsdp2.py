"""fp8-all-gather-without-fsdp2"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_KEY = "fp8_enable_fsdp_float8_all_gather"


@rule(
    id="fp8-all-gather-without-fsdp2",
    severity=Severity.ERROR,
    topic="precision",
    bad="fp8: true\ntorch_compile: true\nfp8_enable_fsdp_float8_all_gather: true\n",
    good=(
        "fp8: true\ntorch_compile: true\nfp8_enable_fsdp_float8_all_gather: true\n"
        "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp8 all-gather is switched on without what it needs: FSDP2 and tensorwise scaling.

    `fp8_enable_fsdp_float8_all_gather` sends sharded weights as fp8, half the traffic of bf16. Only FSDP2 keeps
    parameters one by one so that it can cast them before sending, and only the `tensorwise` recipe has one scale for a
    whole tensor. Axolotl refuses the file otherwise.

    Write an `fsdp_config` (up to 0.19 with `fsdp_version: 2` at the top level beside it) and leave `fp8_config.recipe`
    at tensorwise, or remove the key.
    """
    if not run.config.get(_KEY):
        return
    fix = unsafe("Gather weights in 16 bit: remove the key", delete_key(_KEY))
    version = run.config.get("fsdp_version")
    if schema_of(run).since("0.20.0"):
        if not run.config.get("fsdp_config"):
            message = f"{_KEY} needs FSDP2, but there is no fsdp_config: Axolotl refuses the file"
            yield Hit(key=_KEY, message=message, fix=fix)
    elif str(version) != "2":
        found = f"fsdp_version is {version}" if version is not None else "fsdp_version is not set"
        yield Hit(key=_KEY, message=f"{_KEY} needs FSDP2, but {found}: Axolotl refuses the file", fix=fix)
    elif run.config.document.values.get("fsdp_version") is None:
        message = (
            f"{_KEY} with fsdp_version 2 inside fsdp_config, where Axolotl's check of it does not look: it refuses the "
            "file"
        )
        written = safe("Write fsdp_version: 2 at the top level", insert_key("fsdp_version", 2, beside="fsdp_config"))
        yield Hit(key=_KEY, message=message, fix=written)
    recipe = run.config.get("fp8_config.recipe", "tensorwise")
    if recipe != "tensorwise":
        message = (
            f"{_KEY} works with tensorwise scaling only, but fp8_config.recipe is {recipe}: Axolotl refuses the file"
        )
        yield Hit(key="fp8_config.recipe", near=(_KEY,), message=message, fix=fix)
