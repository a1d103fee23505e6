"""Traces that ship with vramwise: one per model type, with formulas of config fields instead of numbers.

`scripts/trace_templates.py` creates them: it traces a type at three sets of dimensions and finds the formula for each
number. A template serves any config of its type whose other fields equal those of the type's default config. Pure
except for reading our own file. A formula is written ["=", [numerator, denominator, field…], …]: a sum of products.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b85decode
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

from vramwise.bundled import bundled_json

FILE = "models/trace_templates.json"
Template = Mapping[str, Any]
WIDTH = "a head's width"
SHARED = "heads that share a key head"
HEADS = ("num_attention_heads", "n_head", "decoder_attention_heads", "attention_heads")
# fields that do not affect shapes: names, token ids, factors, rotary settings
_NO_SAY = re.compile(
    r".*(_token_id|_eps|_epsilon|_theta|_std|_range|_coef|_alpha|_multiplier|_factor|_scaling|_scale|_version|_scalar)"
    r"|rope_\w+|architectures|torch_dtype|dtype|model_type|_name_or_path|use_cache|output_\w+|return_dict|id2label"
    r"|label2id|problem_type|chunk_size_feed_forward|is_encoder_decoder|pretraining_tp|tie_word_embeddings"
    r"|quantization_config|attn_implementation|_attn_implementation|transformers_version|bos|eos|pad|partial_rotary\w*"
)


class NotCovered(Exception):  # noqa: N818 - an answer, not an error
    """A config differs from its type's template in something other than dimensions; the text says what."""


@cache
def _all() -> Mapping[str, Any]:
    found: Mapping[str, Any] = bundled_json(FILE)
    return found


def template_types() -> Sequence[str]:
    """Return the model types that have a template."""
    return sorted(_all()["types"])


def without_template() -> Mapping[str, str]:
    """Return why types that can be traced have no template."""
    found: Mapping[str, str] = _all()["without"]
    return found


@cache
def template_of(model_type: str) -> Template | None:
    """Return the template of a type, or None."""
    packed = _all()["types"].get(model_type)
    if packed is None:
        return None
    found: Template = json.loads(zlib.decompress(b85decode(packed)))
    return found


def document_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the trace document of a config.json by its type's template; None if there is no template.

    Raises NotCovered if a field that is not a dimension differs from the type's default.
    """
    template = template_of(str(config.get("model_type")))
    width = config.get("n_embd")
    if isinstance(width, int) and config.get("n_inner") == 4 * width:  # as the type does by itself
        config = {key: value for key, value in config.items() if key != "n_inner"}
    return None if template is None else filled(template, config)


def filled(template: Template, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document that a template gives for a config."""
    fields = _fields(template, config)
    tied = bool(config.get("tie_word_embeddings", template["fields"].get("tie_word_embeddings", False)))
    kinds = _kinds(template, config, fields)
    found = {key: _worked_out(value, fields) for key, value in template["document"].items()}
    found["modes"] = _with_steps(found["modes"], _worked_out(template["steps"], fields))
    named = [_worked_out(row, fields) for row in template["before"]]
    for layer, kind in enumerate(kinds):
        named += [
            [row[0].replace("@", str(layer), 1), *row[1:], layer]
            for row in _worked_out(template["layer"][kind], fields)
        ]
    named += [_worked_out(row, fields) for row in template["after"]]
    sizes = {**found["sizes"], "num_hidden_layers": len(kinds), "tie_word_embeddings": tied}
    if tied:
        named = [row for row in named if row[2] != "lm_head"]
        found["head"] = f"{found['embedding']}.weight"
    return {**found, "kinds": kinds, "parameters": named, "sizes": sizes}


def _with_steps(modes: Mapping[str, Any], steps: Sequence[Any]) -> dict[str, Any]:
    """Return the passes with steps in place of step numbers: passes share most of them."""

    def program(one: Mapping[str, Any]) -> dict[str, Any]:
        found = {**one, "steps": [steps[number] for number in one["steps"]]}
        return {**found, "between": program(one["between"])} if "between" in one else found

    return {
        mode: {
            way: {
                **one,
                "before": program(one["before"]),
                "layers": [program(layer) for layer in one["layers"]],
                "after": program(one["after"]),
            }
            for way, one in ways.items()
        }
        for mode, ways in modes.items()
    }


def _fields(template: Template, config: Mapping[str, Any]) -> dict[str, int]:
    """Return the dimensions of a config; missing ones are the type's default or follow from the others."""
    defaults, dimensions = template["fields"], template["dimensions"]
    by_layer = {field for field, _ in template["kinds"]["by"]}
    for key, value in config.items():
        if key in dimensions or key not in defaults or _NO_SAY.fullmatch(key) or key in by_layer:
            continue
        if key not in template["derived"] and value not in (defaults[key], config.get(template["equal"].get(key, ""))):
            raise NotCovered(f"its {key} is {value!r:.40}, the shipped trace has {defaults[key]!r:.40}")
    for key, known in template["lists"].items():
        if key in config and (not isinstance(config[key], list) or not all(one in known for one in config[key])):
            raise NotCovered(f"its {key} are not those of the shipped trace ({known[0]})")
    found: dict[str, int] = {}
    for key in dimensions:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise NotCovered(f"its {key} is {value!r:.40}")
        found[key] = value
    for key, formula in dimensions.items():
        if key not in found and formula is not None:
            found[key] = _number(formula, with_width(found)) if isinstance(formula, list) else formula
    found = with_width(found)
    if "head_dim" in dimensions and "head_dim" not in found:
        found["head_dim"] = _number(["=", [1, 1, WIDTH]], found)
    for key, formula in template["derived"].items():
        if config.get(key) not in (None, _number(formula, found)):
            raise NotCovered(f"its {key} is {config[key]!r:.40}, its other dimensions give {_number(formula, found)}")
    return found


def with_width(fields: Mapping[str, int]) -> dict[str, int]:
    """Return the fields and what follows by division: the width of a head, heads per key head."""
    hidden = next((fields[key] for key in ("hidden_size", "n_embd", "d_model") if fields.get(key)), 0)
    heads = next((fields[key] for key in HEADS if fields.get(key)), 0)
    found = dict(fields)
    if hidden and heads and not hidden % heads:
        found[WIDTH] = hidden // heads
    groups = fields.get("num_key_value_heads")
    if heads and groups and not heads % groups:
        found[SHARED] = heads // groups
    return found


def _kinds(template: Template, config: Mapping[str, Any], fields: Mapping[str, int]) -> list[int]:
    """Return the kind of every layer."""
    count, rule = fields[template["layers_field"]], template["kinds"]
    words = layer_words({**fields, **config}, rule["by"], rule["default"], count)
    unknown = next((word for word in words if word not in rule["kinds"]), None)
    if unknown is not None:
        named = ", ".join(field for field, _ in rule["by"])
        raise NotCovered(f"its {named} describe layers that the shipped trace does not have ({unknown:.40})")
    return [rule["kinds"][word] for word in words]


def layer_words(
    config: Mapping[str, Any], by: Sequence[Sequence[str]], default: Mapping[str, str], count: int
) -> list[str]:
    """Return what a config says about each layer, by the fields that decide its kind.

    Each field has a way: "each" lists a word a layer, "in" lists layers, "first" counts layers from the first, "until"
    is the number of the last one (negative: from the end), "last" and "lead" need no field. `default` has the words of
    fields that a config may leave out.
    """
    columns = []
    for field, way in by:
        value = {"last": count - 2, "lead": 1}.get(way, config.get(field))
        if value is None and field in default:
            columns.append([default[field]] * count)
        elif way in ("each", "in") and (not isinstance(value, list) or (way == "each" and len(value) != count)):
            raise NotCovered(f"its {field} does not describe its {count} layers")
        else:
            columns.append([_word(value, way, layer, count) for layer in range(count)])
    return [" ".join(words) for words in zip(*columns, strict=True)] if columns else [""] * count


def _word(value: Any, way: str, layer: int, count: int) -> str:
    if way == "each":
        return str(value[layer])
    if way == "in":
        return "listed" if layer in value else "other"
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotCovered(f"{value!r:.40} is no number of layers")
    if way in ("first", "lead"):
        return "first" if layer < value else "later"
    return "until" if layer <= (value if value >= 0 else count + value) else "after"


def _worked_out(value: Any, fields: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        if value[:1] == ["="]:
            return _number(value, fields)
        return [_worked_out(item, fields) for item in value]
    if isinstance(value, dict):
        return {key: _worked_out(item, fields) for key, item in value.items()}
    return value


def _number(formula: Sequence[Any], fields: Mapping[str, int]) -> int:
    total = 0
    for numerator, denominator, *names in formula[1:]:
        if not fields.keys() >= set(names):
            raise NotCovered("its width or its heads do not divide as in the shipped trace")
        product = numerator * prod([fields[name] for name in names])
        if product % denominator:
            raise NotCovered("its dimensions do not divide as those of the shipped trace do")
        total += product // denominator
    return total
