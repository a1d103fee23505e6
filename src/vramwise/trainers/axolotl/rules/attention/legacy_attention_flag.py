"""legacy-attention-flag"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.resolve.kernels import LEGACY_FLAGS
from vramwise.types import RunSpec, Severity


@rule(
    id="legacy-attention-flag",
    severity=Severity.INFO,
    also=(Severity.WARNING, Severity.ERROR),
    topic="attention",
    bad="base_model: meta-llama/Llama-3.2-1B\nflash_attention: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash_attention_2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An old attention flag stands where `attn_implementation` belongs.

    `flash_attention: true` and its sisters are translated to `attn_implementation` and will be removed. Of several,
    one wins and the others are dropped: xformers, sage, flex, flash, sdp, eager, in this order. A flag beside
    `attn_implementation` is refused, even if both mean the same. A flag that is merely old is said only with
    `--pedantic`, or where the rule is named with `--select`.
    """
    flags = [flag for flag in LEGACY_FLAGS if run.config.get(flag)]
    chosen = run.config.get("attn_implementation")
    for flag in flags:
        name = LEGACY_FLAGS[flag]
        if chosen:
            yield _beside(flag, name, str(chosen))
        elif flag == flags[0]:
            yield Hit(
                key=flag,
                message=f"{flag} is an old spelling and will be removed: it means attn_implementation: {name}",
                fix=safe(
                    f"Write attn_implementation: {name}",
                    insert_key("attn_implementation", name, beside=flag),
                    delete_key(flag),
                ),
                pedantic=True,
            )
        else:
            yield Hit(
                key=flag,
                severity=Severity.WARNING,
                message=f"{flag} is dropped: {flags[0]} wins over it, attention is {LEGACY_FLAGS[flags[0]]}",
                fix=safe(f"Remove {flag}, which is dropped", delete_key(flag)),
            )


def _beside(flag: str, name: str, chosen: str) -> Hit:
    offer = safe if name == chosen else unsafe
    return Hit(
        key=flag,
        severity=Severity.ERROR,
        message=f"{flag} beside attn_implementation: {chosen}: Axolotl stops at an old flag next to the new key",
        fix=offer(f"Keep attn_implementation: {chosen}", delete_key(flag)),
    )
