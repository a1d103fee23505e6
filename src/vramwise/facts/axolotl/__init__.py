"""Axolotl's vocabulary: keys and their types, plugins, optimizers, attention names, what was renamed or removed.

By version: `release("0.21.0")` has it all for one, `history` tells since when there is a key. The functions of this
module are those of the version that is assumed where none is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.facts.axolotl.history import History, history, value_history
from vramwise.facts.axolotl.loading import facts
from vramwise.facts.axolotl.names import suggest
from vramwise.facts.axolotl.release import Deprecation, Release, known_releases, release

ASSUMED = "0.19.0"

__all__ = [
    "ASSUMED",
    "Deprecation",
    "History",
    "Release",
    "history",
    "known_releases",
    "release",
    "suggest",
    "value_history",
]


def _facts() -> dict[str, Any]:
    return facts(ASSUMED)


def keys() -> frozenset[str]:
    """Every top-level key Axolotl knows without plugins, aliases (`model_type`…) included."""
    return release(ASSUMED).keys()


def aliases(block: str = "") -> Mapping[str, str]:
    """Other spelling → Axolotl's own name of the field, at the top level or in a block."""
    return release(ASSUMED).aliases(block)


def defaults() -> Mapping[str, Any]:
    """Top-level defaults that are not null. A key that is absent here is null unless it is set."""
    return release(ASSUMED).defaults()


def key_type(key: str) -> str | None:
    """The type of a top-level, plugin's or block's key (`fsdp_config.offload_params`); None for a key nobody knows."""
    return release(ASSUMED).key_type(key)


def blocks() -> frozenset[str]:
    """Nested mappings whose keys are known: `fsdp_config`, `trl`, `datasets[]` (each item of a list)…"""
    return release(ASSUMED).blocks()


def nested_keys(block: str) -> frozenset[str]:
    """The keys known inside a block, every accepted spelling. Empty for a block that is not known."""
    return release(ASSUMED).nested_keys(block)


def nested_name(block: str, name: str) -> str:
    """The field that a spelling inside a block means: Axolotl drops `fsdp_` from the keys of fsdp_config."""
    return release(ASSUMED).nested_name(block, name)


def refuses_unknown(block: str) -> bool:
    """Whether Axolotl stops at a key it does not know in this block; elsewhere it drops it without a word."""
    return release(ASSUMED).refuses_unknown(block)


def known_plugins() -> tuple[str, ...]:
    """Class paths of Axolotl's own plugins, as `plugins:` lists them."""
    return release(ASSUMED).known_plugins()


def plugin_keys() -> Mapping[str, str]:
    """Key → the plugin that brings it."""
    return release(ASSUMED).plugin_keys()


def plugin_named(written: str) -> str | None:
    """The class path of the plugin that a spelling loads: `axolotl.integrations.` may be left out, a file named."""
    return release(ASSUMED).plugin_named(written)


def optimizers() -> frozenset[str]:
    """Every optimizer name that the schema or transformers accepts."""
    return release(ASSUMED).optimizers()


def optimizer_group(group: str) -> frozenset[str]:
    """Names that share a trait: adamw_like, bitsandbytes_8bit, bitsandbytes_32bit, paged, torchao, raises_later…"""
    return release(ASSUMED).optimizer_group(group)


def optimizer_package(name: str) -> str | None:
    """The module an optimizer needs besides what Axolotl installs by default."""
    return release(ASSUMED).optimizer_package(name)


def attn_implementations() -> frozenset[str]:
    """Names that `attn_implementation` accepts; a path with a slash (a hub kernel) is accepted too."""
    return release(ASSUMED).attn_implementations()


def attention_facts() -> Mapping[str, Any]:
    """legacy_flags, refused_short_names (each → canonical name), varlen_packing, flash_library, fp32_embeddings."""
    return release(ASSUMED).attention_facts()


def legacy_attention_flags() -> Mapping[str, str]:
    """Old boolean key → attention name, in the order in which they win."""
    return release(ASSUMED).legacy_attention_flags()


def adapters() -> frozenset[str]:
    """Adapters that need no plugin."""
    return release(ASSUMED).adapters()


def plugin_adapters() -> Mapping[str, str]:
    """Adapter → the plugin that brings it."""
    return release(ASSUMED).plugin_adapters()


def lr_schedulers() -> frozenset[str]:
    """Names that `lr_scheduler` accepts."""
    return release(ASSUMED).lr_schedulers()


def deprecations() -> Mapping[str, Deprecation]:
    """Keys that were removed or renamed. Some (`unsloth_…`) are no keys any more, but refused all the same."""
    return release(ASSUMED).deprecations()


def check_type(key: str, value: Any) -> str | None:
    """None where Axolotl's schema takes the value for this key, else one sentence: what it takes and what was found."""
    return release(ASSUMED).check_type(key, value)


def type_errors(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(dotted key, sentence) for every value of a config that the schema refuses, blocks included."""
    return release(ASSUMED).type_errors(values)
