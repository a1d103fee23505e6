"""quantization-ignored"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.llamafactory.resolve.adapter import ON_THE_FLY
from vramwise.types import RunSpec, Severity

_BASE = "stage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
_KEY, _METHOD = "quantization_bit", "quantization_method"
_BITS = {"bnb": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,)}


@rule(
    id="quantization-ignored",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="method",
    bad=f"model_name_or_path: Qwen/Qwen3-4B\n{_BASE}quantization_bit: 4\nquantization_method: gptq\n",
    good=f"model_name_or_path: Qwen/Qwen3-4B\n{_BASE}quantization_bit: 4\nquantization_method: bnb\n",
    beyond_trainer="LLaMA-Factory ignores methods it does not support here, and loads the base unquantised.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """quantization_bit that quantises nothing, or in bits that its method has not.

    On the fly only bitsandbytes (4 and 8 bits), HQQ and EETQ (8) quantise. Other names under `quantization_method`
    (gptq, awq, aqlm) are those of checkpoints that are stored quantised: with one of them `quantization_bit` does
    nothing and the base is loaded whole, four times as large as meant. A checkpoint that is stored quantised keeps its
    own bits, whatever the key says. FSDP and ZeRO 3 take 4 bits alone.
    """
    bits, method = run.config.get(_KEY), run.config.get(_METHOD, "bnb")
    if bits is None:
        return
    if run.loading.quantization == "gptq":
        message = f"{_KEY} {bits} has no effect: the checkpoint is stored quantised, as its name says"
        yield Hit(key=_KEY, message=message, severity=Severity.WARNING, fix=unsafe("Delete it", delete_key(_KEY)))
    elif method not in ON_THE_FLY:
        message = f"{_METHOD} {method} does not quantise while loading: the base is loaded in full, not in {bits} bits"
        fix = unsafe("Use bitsandbytes: remove the method", delete_key(_METHOD))
        yield Hit(key=_METHOD, message=message, fix=fix, still_runs=True)
    elif bits not in _BITS[method]:
        taken = ", ".join(map(str, _BITS[method]))
        yield Hit(key=_KEY, message=f"{_KEY} {bits}: {method} supports {taken} bits, so LLaMA-Factory stops")
    elif bits != 4 and run.sharding.kind in ("fsdp1", "fsdp2", "zero3"):
        yield Hit(
            key=_KEY,
            message=f"{_KEY} {bits} under {run.sharding.kind}: only 4 bits are supported, so LLaMA-Factory stops",
        )
