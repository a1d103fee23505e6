"""skip-upcast-ignored"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity

_KEY = "embeddings_skip_upcast"


@rule(
    id="skip-upcast-ignored",
    severity=Severity.INFO,
    topic="precision",
    bad="adapter: lora\nembeddings_skip_upcast: true\n",
    good="adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: true\n",
    beyond_trainer="Axolotl reads the key only where a base is quantised, and says nothing elsewhere.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`embeddings_skip_upcast` where Axolotl does not read it.

    While it prepares a model, Axolotl holds embeddings and head in fp32 for a moment; with a large vocabulary that can
    be the peak of loading. `embeddings_skip_upcast` leaves them in 16 bit: up to 0.19 only with `load_in_4bit` and
    without FSDP, since 0.20 with every quantised base, where it is on by itself. In a full fine-tune it has no effect.
    """
    if not run.config.get(_KEY):
        return
    if schema_of(run).since("0.20.0"):
        if run.loading.quantization is None:
            message = f"{_KEY} has no effect on a base that is not quantised"
            yield Hit(key=_KEY, message=message, fix=safe("Remove what nobody reads", delete_key(_KEY)))
        return
    fsdp = run.sharding.kind.startswith("fsdp")
    if run.config.get("load_in_4bit") and not fsdp:
        return
    why = "under FSDP" if fsdp else "without load_in_4bit"
    message = f"{_KEY} has no effect {why}"
    yield Hit(key=_KEY, message=message, fix=safe("Remove what nobody reads", delete_key(_KEY)))
