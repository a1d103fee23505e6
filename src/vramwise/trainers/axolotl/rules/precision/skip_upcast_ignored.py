"""skip-upcast-ignored"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "embeddings_skip_upcast"


@rule(
    id="skip-upcast-ignored",
    severity=Severity.INFO,
    topic="precision",
    bad="adapter: lora\nload_in_8bit: true\nembeddings_skip_upcast: true\n",
    good="adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: true\n",
    beyond_trainer="Axolotl reads the key only with load_in_4bit and without FSDP, and says nothing elsewhere.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`embeddings_skip_upcast` where Axolotl does not read it.

    While it prepares a model, Axolotl holds embeddings and head in fp32 for a moment; with a large vocabulary that can
    be the peak of loading. `embeddings_skip_upcast` leaves them in 16 bit, but only with `load_in_4bit` and without
    FSDP: with an 8-bit base or in a full fine-tune it has no effect.
    """
    if not run.config.get(_KEY):
        return
    fsdp = run.sharding.startswith("fsdp")
    if run.config.get("load_in_4bit") and not fsdp:
        return
    why = "under FSDP" if fsdp else "without load_in_4bit"
    message = f"{_KEY} has no effect {why}"
    yield Hit(key=_KEY, message=message, fix=safe("Remove what nobody reads", delete_key(_KEY)))
