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
    beyond_trainer="The default is easy to miss: bf16 is on, but the weights are still fp32.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The weights are loaded in fp32, although the run computes in bf16.

    `bf16` means autocast: products are computed in bf16, from weights of any type. TRL's `dtype` sets the type the
    weights are loaded in. Its default is float32, frozen or not: 4 bytes per parameter instead of 2. For LoRA, the
    base is most of the memory, so it doubles; values passed between layers are fp32 as well. In 4 bits the weights are
    small, but `dtype` is also their compute type: each is unpacked to fp32, then cast.

    With an adapter, set `dtype: bfloat16`. In a full fine-tune the fp32 weights serve as master weights, which is
    often intended: the finding is then only a note, and the fix changes the training.
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
        return "dtype is not set, so it is float32: the frozen base takes 4 bytes per parameter, although bf16 is on"
    return "dtype is not set, so it is float32: weights of 4 bytes and fp32 gradients under bf16 autocast"
