"""Axolotl's vocabulary: keys and their types, plugins, optimizers, attention names, what was renamed or removed.

Facts of Axolotl 0.19.0, in axolotl.json (made by scripts/generate_axolotl_facts.py from its schema). Says what a key
may hold, one key at a time; how keys act together is the resolver's and the rules' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, cast

from vramwise.facts.bundled import bundled_json

_INTEGRATIONS = "axolotl.integrations."


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """A key on its way out. refused: stops the run; mapped: moved to the successor; ignored: accepted, never read."""

    key: str
    effect: Literal["refused", "mapped", "works", "ignored"]
    successor: str | None
    unless_false: bool  # refused only when truthy; otherwise refused whenever it is not null


@cache
def _facts() -> dict[str, Any]:
    return cast(dict[str, Any], bundled_json("axolotl.json"))


def keys() -> frozenset[str]:
    """Every top-level key Axolotl knows without plugins, aliases (`model_type`…) included."""
    return frozenset(_facts()["keys"]) | frozenset(_facts()["aliases"][""])


def aliases(block: str = "") -> Mapping[str, str]:
    """Other spelling → Axolotl's own name of the field, at the top level or in a block."""
    return cast(Mapping[str, str], _facts()["aliases"].get(block, {}))


def defaults() -> Mapping[str, Any]:
    """Top-level defaults that are not null. A key that is absent here is null unless it is set."""
    return cast(Mapping[str, Any], _facts()["defaults"])


@cache
def key_type(key: str) -> str | None:
    """The type of a top-level, plugin's or block's key (`fsdp_config.offload_params`); None for a key nobody knows."""
    block, dot, name = key.rpartition(".")
    if not dot:
        return _top_level_type(key)
    fields = _facts()["blocks"].get(block, {})
    return cast(str | None, fields.get(nested_name(block, name)))


def _top_level_type(key: str) -> str | None:
    name = aliases().get(key, key)
    found = _facts()["keys"].get(name)
    if found is None and (plugin := plugin_keys().get(key)):
        found = _facts()["plugins"][plugin][key]
    return cast(str | None, found)


def blocks() -> frozenset[str]:
    """Nested mappings whose keys are known: `fsdp_config`, `trl`, `datasets[]` (each item of a list)…"""
    return frozenset(_facts()["blocks"])


def nested_keys(block: str) -> frozenset[str]:
    """The keys known inside a block, every accepted spelling. Empty for a block that is not known."""
    fields = _facts()["blocks"].get(block, {})
    known = frozenset(fields) | frozenset(aliases(block))
    if block == "fsdp_config":
        known |= {f"fsdp_{name}" for name in fields if not name.startswith("fsdp_")}
    return known


def nested_name(block: str, name: str) -> str:
    """The field that a spelling inside a block means: Axolotl drops `fsdp_` from the keys of fsdp_config."""
    if block == "fsdp_config" and name != "fsdp_version":
        name = name.removeprefix("fsdp_")
    return aliases(block).get(name, name)


def refuses_unknown(block: str) -> bool:
    """Whether Axolotl stops at a key it does not know in this block; elsewhere it drops it without a word."""
    return block in _facts()["closed_blocks"]


def known_plugins() -> tuple[str, ...]:
    """Class paths of Axolotl's own plugins, as `plugins:` lists them."""
    return tuple(_facts()["plugins"])


@cache
def plugin_keys() -> Mapping[str, str]:
    """Key → the plugin that brings it."""
    return {key: plugin for plugin, brought in _facts()["plugins"].items() for key in brought}


def plugin_named(written: str) -> str | None:
    """The class path of the plugin that a spelling loads: the `axolotl.integrations.` may be left out, a file named."""
    parts = written.removeprefix(_INTEGRATIONS).split(".")
    wanted = f"{_INTEGRATIONS}{parts[0]}.{parts[-1]}"
    return wanted if wanted in known_plugins() else None


def optimizers() -> frozenset[str]:
    """Every optimizer name that the schema or transformers accepts."""
    return frozenset(name for names in _facts()["optimizers"].values() for name in names)


def optimizer_group(group: str) -> frozenset[str]:
    """Names that share a trait: adamw_like, bitsandbytes_8bit, bitsandbytes_32bit, paged, torchao, raises_later…"""
    return frozenset(_facts()["optimizer_groups"][group])


def optimizer_package(name: str) -> str | None:
    """The module an optimizer needs besides what Axolotl installs by default."""
    return cast(str | None, _facts()["optimizer_packages"].get(name))


def attn_implementations() -> frozenset[str]:
    """Names that `attn_implementation` accepts; a path with a slash (a hub kernel) is accepted too."""
    return frozenset(_facts()["attention"]["names"])


def attention_facts() -> Mapping[str, Any]:
    """legacy_flags, refused_short_names (each → canonical name), varlen_packing, flash_library, fp32_embeddings."""
    return cast(Mapping[str, Any], _facts()["attention"])


def legacy_attention_flags() -> Mapping[str, str]:
    """Old boolean key → attention name, in the order in which they win."""
    return cast(Mapping[str, str], _facts()["attention"]["legacy_flags"])


def adapters() -> frozenset[str]:
    """Adapters that need no plugin."""
    return frozenset(_facts()["adapters"]["built_in"])


def plugin_adapters() -> Mapping[str, str]:
    """Adapter → the plugin that brings it."""
    return cast(Mapping[str, str], _facts()["adapters"]["by_plugin"])


def lr_schedulers() -> frozenset[str]:
    """Names that `lr_scheduler` accepts."""
    return frozenset(_facts()["lr_schedulers"])


def deprecations() -> Mapping[str, Deprecation]:
    """Keys that were removed or renamed. Some (`unsloth_…`) are no keys any more, but refused all the same."""
    return {
        key: Deprecation(
            key=key, effect=fact["effect"], successor=fact["successor"], unless_false=fact.get("unless_false", False)
        )
        for key, fact in _facts()["deprecated"].items()
    }


def check_type(key: str, value: Any) -> str | None:
    """None where Axolotl's schema takes the value for this key, else one sentence: what it takes and what was found.

    A block is only asked to be a mapping: its keys are checked one by one under their dotted names. Unknown keys pass.
    Enumerated types are judged; names that are free text in the schema (optimizer, attn_implementation) are not.
    """
    from vramwise.trainers.value_types import accepts, describe, describe_value

    written = key_type(key)
    if written is None or accepts(written, value):
        return None
    return f"{key} takes {describe(written)}, found {describe_value(value)}"


def type_errors(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(dotted key, sentence) for every value of a config that the schema refuses, blocks included.

    Keys of a plugin that is not listed are skipped: Axolotl drops them unseen.
    """
    listed = {plugin_named(item) for item in _texts(values.get("plugins"))}
    for key, value in values.items():
        if not isinstance(key, str) or plugin_keys().get(key, None) not in {None, *listed}:
            continue
        if sentence := check_type(key, value):
            yield key, sentence
        elif isinstance(value, Mapping) and f"block({key})" in (key_type(key) or ""):
            nested = ((f"{key}.{name}", held) for name, held in value.items() if isinstance(name, str))
            yield from ((path, found) for path, held in nested if (found := check_type(path, held)))


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def suggest(word: str, among: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """The names a misspelt word may mean, closest first; case, dashes and swapped letters are forgiven."""
    return _suggest(word, frozenset(among), limit)


@lru_cache(maxsize=1024)
def _suggest(word: str, among: frozenset[str], limit: int) -> tuple[str, ...]:
    from difflib import get_close_matches

    by_folded = {_folded(name): name for name in sorted(among)}
    return tuple(by_folded[match] for match in get_close_matches(_folded(word), by_folded, n=limit, cutoff=0.75))


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
