"""bf16-unsupported"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Edit, GpuSpec, RunSpec, Severity


@rule(
    id="bf16-unsupported",
    severity=Severity.WARNING,
    topic="precision",
    needs={"gpu"},
    options="--gpu t4",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """bf16 is switched on for a card that has no bf16.

    NVIDIA cards have bf16 arithmetic from compute capability 8.0 (Ampere) on. On an older card a literal `bf16: true`
    is either refused or emulated: every matrix product converts through fp32, tensor cores stay idle and training
    crawls. Axolotl only warns.

    `bf16: auto` takes bf16 where the card has it and fp16 elsewhere, so the same file serves both; on an old card
    `fp16: true` with `bf16: false` is the choice that leaves nothing to torch's own test.
    """
    gpu = run.target.gpu
    if gpu is None or gpu.bf16:
        return
    for key in ("bf16", "bfloat16"):
        if run.config.get(key) is True:
            yield Hit(
                key=key,
                message=f"{key}: true on {_card(gpu)}, which has no bf16: it is refused, or emulated and crawls",
                fix=unsafe("Let the card decide: bf16 auto", *_edits(key)),
            )


def _card(gpu: GpuSpec) -> str:
    return (
        gpu.name if gpu.capability is None else f"{gpu.name} (sm_{gpu.capability[0]}{gpu.capability[1]}, needs sm_80)"
    )


def _edits(key: str) -> tuple[Edit, ...]:
    if key == "bf16":
        return (set_key("bf16", "auto"),)
    return (insert_key("bf16", "auto", beside=key), delete_key(key))
