"""fp32-base"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="fp32-base",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    costs_memory=True,
    topic="precision",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\nmax_steps: 100\n",
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndtype: bfloat16\ndataset_name: trl-lib/tldr\nuse_peft: true\n"
        "max_steps: 100\n"
    ),
    beyond_trainer="A default that is easily taken for another: bf16 is on, and the weights are fp32 all the same.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The weights are loaded in fp32, although the run computes in bf16.

    `bf16` is autocast: products are made in bf16, from weights of any type. What type they are loaded in is TRL's
    `dtype`, and that is float32 where nothing is said, frozen or not: 4 bytes a parameter instead of 2. For LoRA the
    base is most of the memory, so it doubles; what passes between the layers is fp32 as well. In 4 bits the weights are
    small, but `dtype` is also the type they are computed in: each is unpacked to fp32, then cast.

    With an adapter write `dtype: bfloat16`. A full fine-tune keeps fp32 weights as its masters this way, which is what
    many want: there the finding only informs, and the change is another training.
    """
    change = changes.load_in_bf16(run)
    if change is None or run.origins["weights_dtype"].place is not None:
        return
    yield Hit(
        field="weights_dtype",
        message=_message(run),
        change=change,
        severity=None if run.adapter.kind else Severity.INFO,
    )


def _message(run: RunSpec) -> str:
    if run.loading.quantization == "4bit":
        return "dtype is not set, so it is float32: 4-bit weights are unpacked to fp32, and all others are fp32"
    if run.adapter.kind:
        return "dtype is not set, so it is float32: the frozen base takes 4 bytes a parameter, although bf16 is on"
    return "dtype is not set, so it is float32: weights of 4 bytes and fp32 gradients under bf16 autocast"
