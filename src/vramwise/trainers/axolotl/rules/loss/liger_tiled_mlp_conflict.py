"""liger-tiled-mlp-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import LIGER, listed_plugins
from vramwise.types import RunSpec, Severity

_KEY = "tiled_mlp_use_original_mlp"


@rule(
    id="liger-tiled-mlp-conflict",
    severity=Severity.ERROR,
    topic="loss",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_glu_activation: true\ntiled_mlp: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_glu_activation: true\ntiled_mlp: true\ntiled_mlp_use_original_mlp: true\n"
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Liger's MLP kernel and the tiled MLP are both on.

    Both replace the model's MLP. They go together only if the tiling wraps the MLP that is there
    (`tiled_mlp_use_original_mlp: true`). That is the default, but Axolotl checks before it fills in defaults: the key
    has to be written, or it stops.
    """
    if LIGER not in listed_plugins(run) or run.config.get("liger_glu_activation") is not True:
        return
    if run.config.get("tiled_mlp") is not True or run.config.get(_KEY):
        return
    edit = insert_key(_KEY, True, beside="tiled_mlp")
    unset = _KEY not in run.config
    yield Hit(
        key="tiled_mlp",
        message=f"tiled_mlp with liger_glu_activation needs {_KEY}: true written in the file: Axolotl stops",
        fix=safe("Write the default", edit) if unset else unsafe("Tile the MLP that is there", edit),
    )
