"""Which plugins a config lists: a plugin's keys and checks exist only if it is listed."""

from __future__ import annotations

from vramwise.rules.base import insert_key, set_key
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Edit, RunSpec

LIGER = "axolotl.integrations.liger.LigerPlugin"
CUT_CROSS_ENTROPY = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"


def listed_plugins(run: RunSpec) -> tuple[str, ...]:
    """Return the class paths of Axolotl's own plugins under `plugins:`, in the order in which they are applied."""
    return tuple(plugin for plugin in _named(run) if plugin is not None)


def loaded_plugins(run: RunSpec) -> tuple[str, ...]:
    """Return the listed plugins, and those that this version loads by default."""
    return (*schema_of(run).built_in_plugins(), *listed_plugins(run))


def lists_plugin(run: RunSpec, name: str) -> bool:
    """Return whether one of Axolotl's own plugins is listed, by class name."""
    return any(plugin.endswith(f".{name}") for plugin in listed_plugins(run))


def repairs_diffusion(run: RunSpec) -> bool:
    """Return whether the DiffusionPlugin of 0.21 corrects an old file before validation: warm-up and best metric."""
    return schema_of(run).repairs_diffusion(run.config.document.values)


def lists_foreign_plugin(run: RunSpec) -> bool:
    """Return whether a plugin is listed that is not Axolotl's own: it may add unknown adapters and keys."""
    return None in _named(run)


def list_plugin(run: RunSpec, plugin: str, *, beside: str) -> Edit | None:
    """Return an edit that adds one of Axolotl's own plugins to `plugins:`.

    None if it is already listed, or if the value is not a list.
    """
    written = run.config.document.values.get("plugins")
    if plugin in listed_plugins(run) or not isinstance(written, list | None):
        return None
    if written:
        return insert_key(f"plugins.{len(written)}", plugin, beside=f"plugins.{len(written) - 1}")
    if "plugins" in run.config:
        return set_key("plugins", [plugin])
    return insert_key("plugins", [plugin], beside=beside)


def _named(run: RunSpec) -> list[str | None]:
    """Return, for each entry, the class path of Axolotl's own plugin, or None for other plugins.

    Uses the file's own values: if one entry has a wrong type, the others still count.
    """
    written = run.config.document.values.get("plugins")
    named = schema_of(run).plugin_named
    return [named(item) for item in written if isinstance(item, str)] if isinstance(written, list) else []
