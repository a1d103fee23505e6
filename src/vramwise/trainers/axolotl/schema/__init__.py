"""Axolotl's vocabulary: keys and their types, plugins, optimizers, attention names, what was renamed or removed.

By version: `schema_in(stack)` has it all for one, `history` tells since when there is a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.axolotl.schema.history import History, history, value_history
from vramwise.trainers.axolotl.schema.loading import facts
from vramwise.trainers.axolotl.schema.names import suggest
from vramwise.trainers.axolotl.schema.version import Deprecation, Schema, known_releases, schema_of_version
from vramwise.types import Stack

ASSUMED = "0.19.0"

__all__ = [
    "ASSUMED",
    "Deprecation",
    "History",
    "Schema",
    "history",
    "known_releases",
    "releases",
    "schema_in",
    "schema_of_version",
    "suggest",
    "value_history",
]


def schema_in(stack: Stack) -> Schema:
    """What the Axolotl of a stack knows."""
    return schema_of_version(stack.releases["axolotl"].version)


def releases() -> dict[str, dict[str, str]]:
    """Known versions, the oldest first, with the lowest version of each package that it installs with."""
    return {
        version: {package: _lowest(wanted) for package, wanted in schema_of_version(version).pins.items()}
        for version in known_releases()
    }


def _lowest(wanted: str) -> str:
    return wanted.split(",")[0].lstrip("=>")


def _facts() -> dict[str, Any]:
    return facts(ASSUMED)


def keys() -> frozenset[str]:
    """Every top-level key Axolotl knows without plugins, aliases (`model_type`…) included."""
    return schema_of_version(ASSUMED).keys()


def aliases(block: str = "") -> Mapping[str, str]:
    """Other spelling → Axolotl's own name of the field, at the top level or in a block."""
    return schema_of_version(ASSUMED).aliases(block)


def defaults() -> Mapping[str, Any]:
    """Top-level defaults that are not null. A key that is absent here is null unless it is set."""
    return schema_of_version(ASSUMED).defaults()


def key_type(key: str) -> str | None:
    """The type of a top-level, plugin's or block's key (`fsdp_config.offload_params`); None for a key nobody knows."""
    return schema_of_version(ASSUMED).key_type(key)


def blocks() -> frozenset[str]:
    """Nested mappings whose keys are known: `fsdp_config`, `trl`, `datasets[]` (each item of a list)…"""
    return schema_of_version(ASSUMED).blocks()


def nested_keys(block: str) -> frozenset[str]:
    """The keys known inside a block, every accepted spelling. Empty for a block that is not known."""
    return schema_of_version(ASSUMED).nested_keys(block)


def nested_name(block: str, name: str) -> str:
    """The field that a spelling inside a block means: Axolotl drops `fsdp_` from the keys of fsdp_config."""
    return schema_of_version(ASSUMED).nested_name(block, name)


def refuses_unknown(block: str) -> bool:
    """Whether Axolotl stops at a key it does not know in this block; elsewhere it drops it without a word."""
    return schema_of_version(ASSUMED).refuses_unknown(block)


def known_plugins() -> tuple[str, ...]:
    """Class paths of Axolotl's own plugins, as `plugins:` lists them."""
    return schema_of_version(ASSUMED).known_plugins()


def plugin_keys() -> Mapping[str, str]:
    """Key → the plugin that brings it."""
    return schema_of_version(ASSUMED).plugin_keys()


def plugin_named(written: str) -> str | None:
    """The class path of the plugin that a spelling loads: `axolotl.integrations.` may be left out, a file named."""
    return schema_of_version(ASSUMED).plugin_named(written)


def optimizers() -> frozenset[str]:
    """Every optimizer name that the schema or transformers accepts."""
    return schema_of_version(ASSUMED).optimizers()


def optimizer_group(group: str) -> frozenset[str]:
    """Names that share a trait: adamw_like, bitsandbytes_8bit, bitsandbytes_32bit, paged, torchao, raises_later…"""
    return schema_of_version(ASSUMED).optimizer_group(group)


def optimizer_package(name: str) -> str | None:
    """The module an optimizer needs besides what Axolotl installs by default."""
    return schema_of_version(ASSUMED).optimizer_package(name)


def attn_implementations() -> frozenset[str]:
    """Names that `attn_implementation` accepts; a path with a slash (a hub kernel) is accepted too."""
    return schema_of_version(ASSUMED).attn_implementations()


def attention_facts() -> Mapping[str, Any]:
    """legacy_flags, refused_short_names (each → canonical name), varlen_packing, flash_library, fp32_embeddings."""
    return schema_of_version(ASSUMED).attention_facts()


def legacy_attention_flags() -> Mapping[str, str]:
    """Old boolean key → attention name, in the order in which they win."""
    return schema_of_version(ASSUMED).legacy_attention_flags()


def adapters() -> frozenset[str]:
    """Adapters that need no plugin."""
    return schema_of_version(ASSUMED).adapters()


def plugin_adapters() -> Mapping[str, str]:
    """Adapter → the plugin that brings it."""
    return schema_of_version(ASSUMED).plugin_adapters()


def lr_schedulers() -> frozenset[str]:
    """Names that `lr_scheduler` accepts."""
    return schema_of_version(ASSUMED).lr_schedulers()


def deprecations() -> Mapping[str, Deprecation]:
    """Keys that were removed or renamed. Some (`unsloth_…`) are no keys any more, but refused all the same."""
    return schema_of_version(ASSUMED).deprecations()


def check_type(key: str, value: Any) -> str | None:
    """None where Axolotl's schema takes the value for this key, else one sentence: what it takes and what was found."""
    return schema_of_version(ASSUMED).check_type(key, value)


def type_errors(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(dotted key, sentence) for every value of a config that the schema refuses, blocks included."""
    return schema_of_version(ASSUMED).type_errors(values)
