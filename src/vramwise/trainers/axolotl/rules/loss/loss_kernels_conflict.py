"""loss-kernels-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import CUT_CROSS_ENTROPY, LIGER, listed_plugins
from vramwise.types import RunSpec, Severity

# Sorted by how much memory a kernel saves, the most first.
_KERNELS = ("cut_cross_entropy", "liger_fused_linear_cross_entropy", "liger_cross_entropy", "chunked_cross_entropy")


@rule(
    id="loss-kernels-conflict",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="loss",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_cross_entropy: true\nliger_fused_linear_cross_entropy: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_fused_linear_cross_entropy: true\n"
    ),
    beyond_trainer="Axolotl checks only keys in the file; CutCrossEntropyPlugin turns its loss on without a key.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """More than one replacement for the cross-entropy loss is on.

    Cut cross entropy, Liger's fused linear cross entropy, Liger's cross entropy and chunked cross entropy each replace
    the loss, so Axolotl refuses more than one. Listing CutCrossEntropyPlugin turns cut cross entropy on without its
    key, and Axolotl does not notice a Liger loss beside it. Liger's fused loss and cut cross entropy both patch the
    model's forward pass, and the plugin listed last wins. Keep the one you want.
    """
    written = [key for key in _KERNELS if run.config.get(key)]
    plugins = listed_plugins(run)
    if len(written) > 1:
        yield Hit(
            key=written[1],
            message=f"Axolotl refuses more than one loss kernel, and {len(written)} are on: {', '.join(written)}",
            fix=unsafe(f"Keep {written[0]}", *map(delete_key, written[1:])),
        )
    elif CUT_CROSS_ENTROPY in plugins and written == ["chunked_cross_entropy"]:
        yield Hit(
            key="chunked_cross_entropy",
            message="Axolotl refuses chunked_cross_entropy with CutCrossEntropyPlugin, even if that is turned off",
            fix=unsafe("Remove chunked_cross_entropy", delete_key("chunked_cross_entropy")),
        )
    elif {CUT_CROSS_ENTROPY, LIGER} <= set(plugins) and written and "cut_cross_entropy" not in run.config:
        yield Hit(
            severity=Severity.WARNING,
            key=written[0],
            message=f"{written[0]} with CutCrossEntropyPlugin, which is on by default: {_outcome(written[0], plugins)}",
            fix=unsafe("Turn cut cross entropy off", insert_key("cut_cross_entropy", False, beside=written[0])),
        )


def _outcome(key: str, plugins: tuple[str, ...]) -> str:
    if key == "liger_cross_entropy":  # replaces the loss function, which cut cross entropy no longer calls
        return "cut cross entropy computes the loss, and Liger's is never called"
    winner = "Liger" if plugins.index(LIGER) > plugins.index(CUT_CROSS_ENTROPY) else "cut cross entropy"
    return f"both patch the model's forward pass, and {winner}, listed last, wins"
