"""A trainer's keys as a JSON schema (draft-07, which editors' YAML servers read): completion, hover, wrong types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.lookup.keys import listing_trainers, memory_note, rules_about
from vramwise.trainers.base import Trainer
from vramwise.trainers.value_types import ValueType, bounds, parse_type
from vramwise.trainers.vocabulary import KeyFact, key_facts_of

DRAFT = "http://json-schema.org/draft-07/schema#"
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def json_schema(trainer: Trainer, version: str) -> dict[str, Any]:
    """Return the schema of a trainer's config files in one known version.

    Raises VramwiseError if there is no key list.
    """
    facts = key_facts_of(trainer, version)
    if not facts:
        known = ", ".join(one.name for one in listing_trainers())
        raise VramwiseError(f"no key list for {trainer.title}: schemas exist for {known}")
    title = f"{trainer.title} {version}"
    writer = _Writer(trainer, title, facts, trainer.closed_blocks(version))
    return {
        "$schema": DRAFT,
        "title": title,
        "description": f"A training config of {title}, with the effect of each key on GPU memory.",
        "type": "object",
        **writer.top_level(),
        "definitions": dict(writer.definitions()),
    }


class _Writer:
    """Builds one schema, with the vocabulary grouped by blocks."""

    def __init__(self, trainer: Trainer, title: str, vocabulary: Mapping[str, KeyFact], closed: frozenset[str]) -> None:
        self._trainer = trainer
        self._title = title
        self._closed = closed
        self._blocks: dict[str, dict[str, KeyFact]] = {}
        for key, fact in vocabulary.items():
            block, _, name = key.rpartition(".")
            self._blocks.setdefault(block, {})[name] = fact

    def top_level(self) -> dict[str, Any]:
        """Return the schema of the file: unknown keys are errors, unless a plugin is loaded that may add keys."""
        keys = self._blocks[""]
        strict = {"propertyNames": {"enum": sorted(keys), "errorMessage": f"{self._title} has no such key."}}
        openers = [(key, fact) for key, fact in keys.items() if fact.brings_keys]
        conditions: dict[str, Any] = strict
        for key, fact in openers:
            unknown = {"contains": {"not": {"enum": list(fact.names)}}}
            conditions = {"if": {"required": [key], "properties": {key: unknown}}, "else": conditions}
        return {"properties": self._properties(""), **conditions}

    def definitions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield one definition per block."""
        for block in sorted(self._blocks):
            if block:
                closed = {"additionalProperties": False} if block in self._closed else {}
                yield block, {"type": "object", "properties": self._properties(block), **closed}

    def _properties(self, block: str) -> dict[str, Any]:
        dotted = f"{block}." if block else ""
        return {name: self._property(f"{dotted}{name}", fact) for name, fact in sorted(self._blocks[block].items())}

    def _property(self, key: str, fact: KeyFact) -> dict[str, Any]:
        found = self._value(key, fact)
        if fact.default is not None:
            found["default"] = fact.default
        if description := "\n\n".join(self._describe(key, fact)):
            found["description"] = description
        if fact.deprecated:
            found |= {"deprecated": True, "doNotSuggest": True}
            if not fact.still_works:  # editors show a message as an error
                found["deprecationMessage"] = fact.deprecated
        return found

    def _describe(self, key: str, fact: KeyFact) -> Iterator[str]:
        if fact.deprecated:
            yield fact.deprecated
        if note := memory_note(self._trainer, key, fact)[1]:
            yield f"Memory: {note}"
        if fact.needs:
            yield f"Used only when the plugin {fact.needs} is listed."
        if "." not in key and (rules := rules_about(self._trainer, key)):
            yield f"Rules: {', '.join(rule.id for rule in rules)} (vramwise explain ID)."

    def _value(self, key: str, fact: KeyFact) -> dict[str, Any]:
        alternatives, optional = parse_type(fact.type)
        found = [self._one(key, one, fact) for one in alternatives]
        if {} in found:
            return {}
        if fact.names and not any(one.kind == "list" for one in alternatives):
            found.insert(0, {"enum": list(fact.names)})
        if optional:
            found.append({"type": "null"})
        return dict(found[0]) if len(found) == 1 else {"anyOf": found}

    def _one(self, key: str, one: ValueType, fact: KeyFact) -> dict[str, Any]:
        """Return the schema of one alternative of a type; {} allows anything."""
        if one.kind in ("block", "open"):
            return _reference(one.limits[0])
        if one.kind == "dict":
            return _reference(key) if key in self._blocks else self._mapping(one)
        if one.kind == "list":
            item = self._value(f"{key}[]", KeyFact(type=one.holds[0], names=fact.names)) if one.holds else {}
            least = {"minItems": int(one.limits[0].removeprefix("min="))} if one.limits else {}
            return {"type": "array", "items": item, **least}
        if one.kind == "tuple":
            items = [self._value(key, KeyFact(type=held)) for held in one.holds]
            return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}
        return _scalar(one)

    def _mapping(self, one: ValueType) -> dict[str, Any]:
        held = self._value("", KeyFact(type=one.holds[1])) if one.holds else {}
        return {"type": "object", "additionalProperties": held} if held else {"type": "object"}


def _reference(block: str) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{block}"}


def _scalar(one: ValueType) -> dict[str, Any]:
    if one.kind in ("int", "float"):
        limits = {_BOUNDS[name]: bound for name, bound in bounds(one)}
        return {"type": "integer" if one.kind == "int" else "number", **limits}
    if one.kind == "str" and one.limits:
        return {"type": "string", "pattern": f"^{one.limits[0].removeprefix('starts=')}"}
    if one.kind == "one_of":
        return {"enum": list(one.limits)}
    if one.kind == "caseless_one_of":
        return {"anyOf": [{"enum": list(one.limits)}, {"type": "string", "pattern": f"^({_caseless(one.limits)})$"}]}
    if one.kind == "number_text":
        return {"type": "string", "pattern": "^[-+.0-9_eE ]*$"}
    return {"any": {}, "bool": {"type": "boolean"}}.get(one.kind, {"type": "string"})


def _caseless(choices: tuple[str, ...]) -> str:
    letters = ["".join(f"[{x.lower()}{x.upper()}]" if x.isalpha() else f"[{x}]" for x in word) for word in choices]
    return "|".join(letters)
