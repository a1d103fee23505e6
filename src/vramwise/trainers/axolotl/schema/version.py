"""One version of Axolotl: keys and types, plugins, optimizers, attention names, renamed and removed keys.

Describes each key by itself; the resolver and the rules handle how keys act together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, cast

from vramwise.trainers import axolotl
from vramwise.trainers.releases import releases_of, versioned_facts

_INTEGRATIONS = "axolotl.integrations."


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """A deprecated key. refused: stops the run; mapped: moved to the successor; ignored: accepted but never read."""

    key: str
    effect: Literal["refused", "mapped", "works", "ignored"]
    successor: str | None
    unless_false: bool  # refused only when truthy; otherwise refused whenever it is not null

    def refuses(self, value: Any) -> bool:
        """Return whether a top-level key with this value stops the run."""
        return self.effect == "refused" and (bool(value) if self.unless_false else value is not None)


class Schema:
    """What one version of Axolotl knows, read from the bundled facts. Created by `schema_of_version`."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._facts = _facts(version)
        self._types: dict[str, str | None] = {}

    def __repr__(self) -> str:
        return f"Schema({self.version!r})"

    @property
    def short(self) -> str:
        """The common name of the version: `0.21`."""
        return self.version.removesuffix(".0")

    def since(self, version: str) -> bool:
        """Return whether this is the given version (as "0.20.0") or a later one."""
        versions = known_releases()
        return versions.index(self.version) >= versions.index(version)

    @property
    def released(self) -> str:
        """The release date, as 2026-10-16."""
        return cast(str, _releases()[self.version]["released"])

    @property
    def python(self) -> str:
        """The supported Python versions, as `>=3.12`."""
        return cast(str, _releases()[self.version]["python"])

    @property
    def pins(self) -> Mapping[str, str]:
        """Package → the required versions, as `==5.20.1` or `>=2.13.0,<2.15.0`."""
        return cast(Mapping[str, str], _releases()[self.version]["pins"])

    def keys(self) -> frozenset[str]:
        """Return every top-level key without plugins, including aliases (`model_type`…)."""
        return self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(self._facts["keys"]) | frozenset(self._facts["aliases"][""])

    def aliases(self, block: str = "") -> Mapping[str, str]:
        """Return other spelling → Axolotl's own name of the field, at the top level or in a block."""
        return cast(Mapping[str, str], self._facts["aliases"].get(block, {}))

    def defaults(self, block: str = "") -> Mapping[str, Any]:
        """Return the defaults that are not null, at the top level or in a block. Other absent keys are null."""
        found = self._facts["nested_defaults"].get(block, {}) if block else self._facts["defaults"]
        return cast(Mapping[str, Any], found)

    def plugin_defaults(self) -> Mapping[str, Any]:
        """Return the defaults of the plugins' keys that are not null; they apply if the plugin is loaded."""
        return cast(Mapping[str, Any], self._facts["plugin_defaults"])

    def key_type(self, key: str) -> str | None:
        """Return the type of a key (top-level, of a plugin, or of a block); None for an unknown key.

        `fsdp_config.offload_params` is a key of a block.
        """
        if key not in self._types:
            self._types[key] = self._type_of(key)
        return self._types[key]

    def _type_of(self, key: str) -> str | None:
        block, dot, name = key.rpartition(".")
        if dot:
            fields = self._facts["blocks"].get(block, {})
            return cast(str | None, fields.get(self.nested_name(block, name)))
        found = self._facts["keys"].get(self.aliases().get(key, key))
        if found is None and (plugin := self.plugin_keys().get(key)):
            found = self._facts["plugins"][plugin][key]
        return cast(str | None, found)

    def reads(self, key: Any) -> bool:
        """Return whether a top-level key is read: before 0.18, not those that later releases brought."""
        return self.since("0.18.0") or self.key_type(str(key)) is not None or key in self.deprecations()

    def blocks(self) -> frozenset[str]:
        """Return the nested mappings whose keys are known: `fsdp_config`, `trl`, `datasets[]` (items of a list)…"""
        return frozenset(self._facts["blocks"])

    def nested_keys(self, block: str) -> frozenset[str]:
        """Return the keys of a block in every accepted spelling; empty for an unknown block."""
        fields = self._facts["blocks"].get(block, {})
        known = frozenset(fields) | frozenset(self.aliases(block))
        if block == "fsdp_config":
            known |= {f"fsdp_{name}" for name in fields if not name.startswith("fsdp_")}
        return known

    def nested_name(self, block: str, name: str) -> str:
        """Return the field that a spelling inside a block means: Axolotl drops `fsdp_` in fsdp_config."""
        if block == "fsdp_config" and name != "fsdp_version":
            name = name.removeprefix("fsdp_")
        return self.aliases(block).get(name, name)

    def refuses_unknown(self, block: str) -> bool:
        """Return whether an unknown key in this block stops Axolotl; elsewhere it is dropped without warning."""
        return block in self._facts["closed_blocks"]

    def known_plugins(self) -> tuple[str, ...]:
        """Return the class paths of Axolotl's own plugins, as `plugins:` lists them."""
        return tuple(self._facts["plugins"])

    def built_in_plugins(self) -> tuple[str, ...]:
        """Return the plugins that are loaded without being listed."""
        return tuple(self._facts["built_in_plugins"])

    def plugin_keys(self) -> Mapping[str, str]:
        """Return key → the plugin that defines it, listed or built in."""
        return self._plugin_keys

    @cached_property
    def _plugin_keys(self) -> Mapping[str, str]:
        return {key: plugin for plugin, brought in self._facts["plugins"].items() for key in brought}

    def plugin_named(self, written: str) -> str | None:
        """Return the class path of the plugin that a spelling loads, or None.

        `axolotl.integrations.` may be omitted, and a file may be named.
        """
        if self.since("0.21.0"):
            written = written.replace(":", ".")  # module:Class
        inner = written.removeprefix(_INTEGRATIONS)
        parts = inner.split(".")
        wanted = (f"{_INTEGRATIONS}{parts[0]}.{parts[-1]}", f"{_INTEGRATIONS}{inner}")
        return next((path for path in wanted if path in self._facts["plugins"]), None)

    def optimizers(self) -> frozenset[str]:
        """Return every optimizer name that the schema or transformers accepts."""
        return frozenset(name for names in self._facts["optimizers"].values() for name in names)

    def optimizer_group(self, group: str) -> frozenset[str]:
        """Return names with a common property: adamw_like, bitsandbytes_8bit, paged, torchao, raises_later…"""
        return frozenset(self._facts["optimizer_groups"][group])

    def attn_implementations(self) -> frozenset[str]:
        """Return the names that `attn_implementation` accepts; a path with a slash (a hub kernel) is accepted too."""
        return frozenset(self._facts["attention"]["names"])

    def attention_facts(self) -> Mapping[str, Any]:
        """Return legacy_flags, refused_short_names, varlen_packing, flash_library and fp32_embeddings.

        The first two map to the canonical name.
        """
        return cast(Mapping[str, Any], self._facts["attention"])

    def adapters(self) -> frozenset[str]:
        """Return the adapters that need no plugin."""
        return frozenset(self._facts["adapters"]["built_in"])

    def plugin_adapters(self) -> Mapping[str, str]:
        """Return adapter → the plugin that defines it."""
        return cast(Mapping[str, str], self._facts["adapters"]["by_plugin"])

    def lr_schedulers(self) -> frozenset[str]:
        """Return the names that `lr_scheduler` accepts."""
        return frozenset(self._facts["lr_schedulers"])

    def deprecations(self) -> Mapping[str, Deprecation]:
        """Return removed or renamed keys. Some (`unsloth_…`) are no longer keys, but are still refused."""
        return self._deprecations

    @cached_property
    def _deprecations(self) -> Mapping[str, Deprecation]:
        return {
            key: Deprecation(
                key=key,
                effect=fact["effect"],
                successor=fact.get("successor"),
                unless_false=fact.get("unless_false", False),
            )
            for key, fact in self._facts["deprecated"].items()
        }

    def check_type(self, key: str, value: Any) -> str | None:
        """Return None if the schema accepts the value for this key, else a sentence: what it takes and what was found.

        A block only has to be a mapping: its keys are checked one by one under their dotted names. Unknown keys pass.
        Enumerated types are checked; names that are free text in the schema (optimizer, attn_implementation) are not.
        """
        from vramwise.trainers.value_types import accepts, describe, describe_value

        written = self.key_type(key)
        if written is None or accepts(written, value):
            return None
        return f"{key} takes {describe(written)}, found {describe_value(value)}"

    def repairs_diffusion(self, values: Mapping[str, Any]) -> bool:
        """Return whether a listed DiffusionPlugin rewrites an old file before validation (since 0.21)."""
        if not self.since("0.21.0") or (values.get("diffusion") is None and values.get("diffusion_lm") is not None):
            return False
        return any(str(self.plugin_named(name)).endswith(".DiffusionPlugin") for name in _texts(values.get("plugins")))

    def type_errors(self, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield (dotted key, sentence) for every value that the schema refuses, including values in blocks.

        Keys of a plugin that is not loaded are skipped: Axolotl drops them.
        """
        loaded = {None, *self.built_in_plugins(), *map(self.plugin_named, _texts(values.get("plugins")))}
        repaired = self.repairs_diffusion(values)
        for key, value in values.items():
            if repaired and key == "warmup_steps" and isinstance(value, float) and 0 < value < 1:
                continue  # the plugin turns it into warmup_ratio
            if not isinstance(key, str) or self.plugin_keys().get(key) not in loaded:
                continue
            if sentence := self.check_type(key, value):
                yield key, sentence
            elif isinstance(value, Mapping) and f"block({key})" in (self.key_type(key) or ""):
                nested = ((f"{key}.{name}", held) for name, held in value.items() if isinstance(name, str))
                yield from ((path, found) for path, held in nested if (found := self.check_type(path, held)))


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


@cache
def schema_of_version(version: str) -> Schema:
    """Return the schema of a version such as "0.21.0"; raises KeyError for an unknown version."""
    if version not in _releases():
        raise KeyError(version)
    return Schema(version)


def known_releases() -> tuple[str, ...]:
    """Return every known version, oldest first."""
    return tuple(_releases())


def _releases() -> Mapping[str, Mapping[str, Any]]:
    """Return version → released, python, pins; oldest first."""
    return releases_of(axolotl.__file__)


def _facts(version: str) -> Mapping[str, Any]:
    """Return everything known about one version. Read-only: versions share what they have in common."""
    return versioned_facts(version, axolotl.__file__)
