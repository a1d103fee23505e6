"""cut-cross-entropy-dtype"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import CUT_CROSS_ENTROPY, listed_plugins
from vramwise.types import RunSpec, Severity


@rule(
    id="cut-cross-entropy-dtype",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="loss",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n"
        "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\ncut_cross_entropy: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n"
        "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\ncut_cross_entropy: true\nbf16: auto\n"
    ),
    beyond_trainer="Axolotl's check needs `cut_cross_entropy` to be written; on by the plugin's default, fp32 passes.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Cut cross entropy without bf16 or fp16 in the file.

    Its backward pass runs in half precision only. Axolotl checks that before it fills in defaults: with
    `cut_cross_entropy: true` the file has to say `bf16` or `fp16` itself, although unset means `bf16: auto`. Writing
    `bf16: auto` gives the same run and passes. With the key left out the plugin turns itself on and nothing is
    checked, not even a run in fp32.
    """
    if CUT_CROSS_ENTROPY not in listed_plugins(run):
        return
    half = run.config.get("bf16") or run.config.get("fp16")
    if run.config.get("cut_cross_entropy") and not half:
        unset = "bf16" not in run.config
        edit = insert_key("bf16", "auto", beside="cut_cross_entropy")
        what = (
            "bf16 is not written (unset means auto, but is checked as off)" if unset else "neither bf16 nor fp16 is on"
        )
        yield Hit(
            key="cut_cross_entropy",
            message=f"cut_cross_entropy: true needs half precision and {what}: Axolotl stops",
            fix=safe("Write the default: bf16 auto", edit) if unset else unsafe("Train in bf16: bf16 auto", edit),
        )
    elif run.kernels.loss_kernel == "cut" and run.precision.compute == "fp32":
        yield Hit(
            severity=Severity.WARNING,
            key="bf16",
            near=("plugins",),
            message="cut cross entropy is on through its plugin, the run is in fp32: its backward needs bf16 or fp16",
            fix=unsafe("Train in bf16: bf16 auto", insert_key("bf16", "auto", beside="plugins")),
        )
