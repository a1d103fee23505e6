"""plugin-key-without-plugin"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import list_plugin, loaded_plugins
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity


@rule(
    id="plugin-key-without-plugin",
    severity=Severity.WARNING,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nliger_rope: true\nliger_fused_linear_cross_entropy: true\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_rope: true\nliger_fused_linear_cross_entropy: true\n"
    ),
    beyond_trainer="Without the plugin its keys are unknown to the schema, which drops unknown keys without warning.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key belongs to a plugin that is not listed under `plugins`.

    `liger_*`, `cut_cross_entropy`, `kd_*` and others are read only if their plugin is listed. Otherwise Axolotl drops
    them without warning: the fused loss is not used, and the run needs the memory that it would have saved.

    List the plugin. The fix is unsafe because the kernels then really run: they change the numerics, and their package
    must be installed. Keys that are off or empty are not reported.
    """
    loaded = loaded_plugins(run)
    dropped: dict[str, list[str]] = {}
    for key, plugin in schema_of(run).plugin_keys().items():
        if plugin not in loaded and run.config.document.values.get(key) not in (None, False):
            dropped.setdefault(plugin, []).append(key)
    for plugin, keys in dropped.items():
        first, *others = sorted(keys, key=list(run.config.document.values).index)
        name = plugin.rpartition(".")[2]
        yield Hit(
            key=first,
            message=f"{_names(first, others)} dropped without warning: {name} is not listed under plugins",
            fix=_fix(run, plugin, first),
        )


def _names(first: str, others: list[str]) -> str:
    if not others:
        return f"{first} is"
    if len(others) > 3:
        return f"{first} and {len(others)} more keys of the same plugin are"
    return f"{', '.join((first, *others[:-1]))} and {others[-1]} are"


def _fix(run: RunSpec, plugin: str, key: str) -> Fix | None:
    edit = list_plugin(run, plugin, beside=key)
    return None if edit is None else unsafe(f"Add {plugin} to plugins", edit)
