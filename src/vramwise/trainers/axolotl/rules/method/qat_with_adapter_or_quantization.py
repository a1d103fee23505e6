"""qat-with-adapter-or-quantization"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import RunSpec, Severity


@rule(
    id="qat-with-adapter-or-quantization",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="method",
    bad="qat:\n  weight_dtype: int4\n  group_size: 32\nadapter: qlora\nload_in_4bit: true\n",
    good="qat:\n  weight_dtype: int4\n  group_size: 32\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Quantisation-aware training together with a quantised base or an adapter.

    QAT trains full 16-bit weights while rounding them on the fly as they will be quantised later. It needs those
    weights: Axolotl refuses `qat` with `load_in_4bit`, `load_in_8bit` or a `peft` block, with ternary weights and other
    activations than int8, and on torch before 2.6. With `adapter` alone it means to refuse and looks at the wrong key:
    the base is then frozen, and only the adapter learns around the rounding.

    Use QAT for a full fine-tune, or an adapter without `qat`.
    """
    if not run.config.get("qat"):
        return
    for key in ("load_in_4bit", "load_in_8bit"):
        if run.config.get(key):
            message = f"qat with {key}: QAT trains full 16-bit weights, Axolotl refuses the file"
            yield Hit(key=key, message=message, fix=unsafe("Load the base in 16 bit", set_key(key, False)))
    if run.config.get("peft"):
        fix = unsafe("Train without QAT", delete_key("qat"))
        yield Hit(key="peft", message="qat with a peft block: Axolotl refuses the file", fix=fix)
    elif run.adapter.kind:
        message = (
            f"qat with adapter: {run.adapter.kind}: the weights that QAT rounds are frozen, only the adapter is trained"
        )
        fix = unsafe("Train without QAT", delete_key("qat"))
        yield Hit(key="qat", message=message, fix=fix, severity=Severity.WARNING)
    if run.config.get("qat.weight_dtype") == "ternary" and run.config.get("qat.activation_dtype", "int8") != "int8":
        fix = unsafe("Use int8 activations", set_key("qat.activation_dtype", "int8"))
        message = "ternary QAT takes int8 activations only: Axolotl refuses the file"
        yield Hit(key="qat.activation_dtype", message=message, fix=fix)
    if run.target.torch < (2, 6) and not schema_of(run).since("0.21.0"):
        version = f"{run.target.torch[0]}.{run.target.torch[1]}"
        yield Hit(key="qat", message=f"qat needs torch 2.6, and the target has {version}: Axolotl refuses the file")
