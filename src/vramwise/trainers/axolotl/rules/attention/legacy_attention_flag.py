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
    """An old attention flag is set instead of `attn_implementation`.

    `flash_attention: true` and the similar flags are deprecated: Axolotl translates them to `attn_implementation` and
    will remove them. If several are set, the first in this order wins and the others are dropped: xformers, sage, flex,
    flash, sdp, eager. Axolotl refuses a flag beside `attn_implementation`, even if both mean the same. A single old
    flag is harmless and reported only with `--pedantic`, or if you name the rule with `--select`.
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
                message=f"{flag} is deprecated: use attn_implementation: {name}, which means the same",
                fix=safe(
                    f"Set attn_implementation: {name}",
                    insert_key("attn_implementation", name, beside=flag),
                    delete_key(flag),
                ),
                pedantic=True,
            )
        else:
            yield Hit(
                key=flag,
                severity=Severity.WARNING,
                message=f"{flag} has no effect: {flags[0]} takes priority, so attention is {LEGACY_FLAGS[flags[0]]}",
                fix=safe(f"Remove {flag}, which has no effect", delete_key(flag)),
            )


def _beside(flag: str, name: str, chosen: str) -> Hit:
    offer = safe if name == chosen else unsafe
    return Hit(
        key=flag,
        severity=Severity.ERROR,
        message=f"Axolotl refuses the deprecated {flag} beside attn_implementation: {chosen}",
        fix=offer(f"Keep attn_implementation: {chosen}", delete_key(flag)),
    )
