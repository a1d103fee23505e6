"""Make the traces that ship with vramwise: a template a model type, good for any dimensions.

    python scripts/trace_templates.py OUT.jsonl [TYPE …]   # traces each type at four sets of dimensions, a row a type
    python scripts/trace_templates.py OUT.jsonl --write    # writes src/vramwise/facts/trace_templates.json

Needs torch and transformers. A type whose numbers follow no formula, or whose layers follow no known rule, gets a row
that says so. Every template is checked: at a fourth set of dimensions it must give what tracing gives.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import zlib
from base64 import b85encode
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from math import prod
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

from model_types import types  # noqa: E402
from vramwise.facts.trace_templates import FILE, filled, with_width  # noqa: E402
from vramwise.families import find_type  # noqa: E402

MODES = ("bf16, autocast", "bf16, fp32 norms, fp32 tables, autocast", "bf16, fp32 norms, autocast")
_SECONDS, _MEMORY = 300, 12 * 1024**3
# Four sets of dimensions. Widths are multiples of 8, heads divide among groups, and no two are alike in a set.
_HEADS = ((6, 2, 40), (8, 4, 24), (10, 5, 56), (12, 3, 32))
_VALUES: dict[str, tuple[int, int, int, int]] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), (3, 4, 5, 6)),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), (656, 424, 904, 1048)),
    "vocab_size": (1048, 1192, 1304, 1432),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), (4096, 5120, 6144, 7168)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), (10, 14, 22, 18)),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token"), (3, 5, 7, 2)),
    "moe_intermediate_size": (184, 248, 328, 136),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size"), (296, 344, 376, 152)),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), (1, 2, 3, 4)),
    "q_lora_rank": (104, 152, 136, 88),
    "kv_lora_rank": (88, 72, 120, 168),
    "qk_rope_head_dim": (16, 32, 48, 64),
    "qk_nope_head_dim": (56, 40, 80, 104),
    "v_head_dim": (72, 64, 112, 96),
    "sliding_window": (1000, 1100, 1200, 1300),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), (1, 2, 2, 3)),
}
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_DENSE = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
_TYPES = ("layer_types",)
_EQUAL = {"word_embed_proj_dim": "hidden_size"}  # where they differ, the code does something else


def dimensions(base: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The fields of one set that a config has."""
    heads, groups, width = _HEADS[place]
    found = {key: values[place] for key, values in _VALUES.items() if isinstance(base.get(key), int) and base[key]}
    wide = {"num_attention_heads": heads, "n_head": heads, "hidden_size": heads * width, "n_embd": heads * width}
    found |= {key: value for key, value in wide.items() if isinstance(base.get(key), int)}
    if isinstance(base.get("num_key_value_heads", ""), int | None):
        alike = base["num_key_value_heads"] == base.get("num_attention_heads")
        found["num_key_value_heads"] = heads if alike and "kv_lora_rank" in base else groups
    if isinstance(base.get("head_dim", ""), int | None) and "qk_rope_head_dim" not in base:
        found["head_dim"] = width + 8  # never what the width divided by the heads is
    return found


def configs(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The default config of a type, and it with each set of dimensions."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[name]
    base = plain({**made().to_dict(), "model_type": name})
    found = []
    for place in range(4):
        fields = dimensions(base, place)
        fields |= {key: fields[other] for key, other in _EQUAL.items() if key in base and other in fields}
        config = plain(made(**{**fields, "tie_word_embeddings": False, "pad_token_id": 0}).to_dict())
        found.append({**config, **fields, "model_type": name, "tie_word_embeddings": False})
    return base, found


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without values that are no JSON."""
    found: dict[str, Any] = json.loads(json.dumps(config, default=str))
    return found


class NoFormula(Exception):  # noqa: N818 - an answer about the type
    """Numbers that follow no formula."""


class Formulas:
    """Finds sums of products of fields through three values."""

    def __init__(self, sets: Sequence[Mapping[str, int]]) -> None:
        self.sets = sets
        names = sorted(sets[0])
        self.products = [
            (words, tuple([prod([one[word] for word in words]) for one in sets]))
            for size in (1, 2, 3)
            for words in combinations_with_replacement(names, size)
            if size < 3 or len(set(words)) == 3
        ]
        self.known: dict[tuple[int, ...], Any] = {}

    def __call__(self, values: tuple[int, ...]) -> Any:
        """The formula through values, or the value where they are one."""
        if len(set(values)) == 1:
            return values[0]
        if values not in self.known:
            self.known[values] = next(iter(self._found(values)), None)
        found = self.known[values]
        if found is None:
            raise NoFormula(f"no formula for {values}")
        return ["=", *found]

    def _found(self, values: tuple[int, ...]) -> Iterator[list[Any]]:
        for words, seen in self.products:
            ratios = {Fraction(value, one) for value, one in zip(values, seen, strict=True)}
            if len(ratios) == 1 and (ratio := ratios.pop()).denominator <= 16 and ratio.numerator <= 64:
                yield [[ratio.numerator, ratio.denominator, *words]]
        short = [item for item in self.products if len(item[0]) < 3]
        for words, seen in short:  # with a constant
            slope = Fraction(values[1] - values[0], seen[1] - seen[0]) if seen[1] != seen[0] else Fraction(0)
            rest = [value - slope * one for value, one in zip(values, seen, strict=True)]
            if slope.denominator == 1 and slope and len(set(rest)) == 1 and abs(rest[0]) < 64:
                yield [[int(slope), 1, *words], [int(rest[0]), 1]]
        for (words, seen), (others, more) in combinations(short, 2):
            for first in (1, 2, 3, 4):
                rest = [value - first * one for value, one in zip(values, seen, strict=True)]
                ratios = {Fraction(value, one) for value, one in zip(rest, more, strict=True)}
                if len(ratios) == 1 and (ratio := ratios.pop()).denominator <= 2 and 0 < ratio.numerator <= 8:
                    yield [[first, 1, *words], [ratio.numerator, ratio.denominator, *others]]


def joined(formulas: Formulas, values: Sequence[Any]) -> Any:
    """One value with formulas for those of all sets."""
    first = values[0]
    if all(one == first for one in values):
        return first
    if all(isinstance(one, dict) and one.keys() == first.keys() for one in values):
        return {key: joined(formulas, [one[key] for one in values]) for key in first}
    if all(isinstance(one, list | tuple) and len(one) == len(first) for one in values):
        return [joined(formulas, items) for items in zip(*values, strict=True)]
    if all(isinstance(one, int) and not isinstance(one, bool) for one in values):
        return formulas(tuple(values))
    raise NoFormula(f"{str(values)[:120]}")


def template(name: str) -> dict[str, Any]:
    """The template of a type."""
    from vramwise.tracing.document import document

    base, sets = configs(name)
    fields = [dimensions(base, place) for place in range(4)]
    documents = [plain(document(config, MODES)) for config in sets]
    formulas = Formulas([with_width(one) for one in fields[:3]])
    shared = [{key: value for key, value in one.items() if key not in ("kinds", "parameters")} for one in documents]
    kinds, types_field = kind_rule(sets[:3], documents[:3])
    made = {
        "fields": {key: value for key, value in base.items() if not isinstance(value, dict | list)},
        "dimensions": {key: _default(name, key, base, fields[:3]) for key in fields[0]},
        "layers_field": next(key for key in _LAYERS if key in fields[0]),
        "layer_types": types_field,
        "equal": {key: other for key, other in _EQUAL.items() if key in base},
        "kinds": kinds,
        "document": joined(formulas, shared[:3]),
        **parameters(formulas, documents[:3]),
    }
    if plain(filled(made, sets[3])) != documents[3]:
        raise NoFormula("the fourth set of dimensions gives another trace")
    return made


def _default(name: str, key: str, base: Mapping[str, Any], sets: Sequence[Mapping[str, int]]) -> Any:
    """What a field is where a config does not say it: a number, or a formula of the others."""
    from transformers import CONFIG_MAPPING

    found = []
    for fields in sets:
        given = {word: value for word, value in fields.items() if word != key}
        try:
            found.append(getattr(CONFIG_MAPPING[name](**given), key, None))
        except Exception:  # the config refuses dimensions that do not divide: the field must be given with them
            found.append(None)
    if not all(isinstance(one, int) for one in found):
        return base[key]
    others = [with_width({word: value for word, value in fields.items() if word != key}) for fields in sets]
    return Formulas(others)(tuple(found))


def kind_rule(sets: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]]) -> tuple[Any, str]:
    """How a config says which kind each layer is of."""
    kinds = [one["kinds"] for one in documents]
    if all(set(one) == {0} for one in kinds):
        return "one", ""
    for field in _DENSE:
        if field in sets[0] and all(
            one == [0] * config[field] + [1] * (len(one) - config[field])
            for one, config in zip(kinds, sets, strict=True)
        ):
            return field, ""
    for field in _TYPES:
        rules = [
            {(str(word), kind) for word, kind in zip(config[field], one, strict=True)}
            for config, one in zip(sets, kinds, strict=True)
            if isinstance(config.get(field), list) and len(config[field]) == len(one)
        ]
        every = set().union(*rules)
        if len(rules) == 3 and len(every) == len({word for word, _ in every}):
            return dict(sorted(every)), field
    raise NoFormula("its kinds of layers follow no known rule")


def parameters(formulas: Formulas, documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Parameters before the layers, of one layer of each kind, and after them."""
    found: list[dict[str, Any]] = []
    for one in documents:
        rows, start = one["parameters"], f"{one['layers']}."
        inside = [place for place, row in enumerate(rows) if row[3] is not None]
        layers = []
        for kind in range(max(one["kinds"]) + 1):
            layer = one["kinds"].index(kind)
            mine = [row for row in rows if row[3] == layer]
            layers.append([[row[0].replace(f"{start}{layer}.", f"{start}@.", 1), *row[1:3]] for row in mine])
        found.append({"before": rows[: inside[0]], "layer": layers, "after": rows[inside[-1] + 1 :]})
    joint: dict[str, Any] = joined(formulas, found)
    return joint


def forked(name: str) -> dict[str, Any]:
    """The row of a type, made in a process of its own."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        os.close(out)
        try:
            row: dict[str, Any] = {"template": template(name)}
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        with os.fdopen(into, "w") as file:
            json.dump(row, file)
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "it took too long or too much memory"}


def write(rows: Mapping[str, Mapping[str, Any]], version: str) -> None:
    """The file that ships."""
    packed = {}
    for name, row in sorted(rows.items()):
        if "template" in row:
            text = json.dumps(row["template"], separators=(",", ":"))
            packed[name] = b85encode(zlib.compress(text.encode(), 9)).decode()
    body = json.dumps({"source": f"transformers {version}", "types": packed}, indent=0)
    (ROOT / "src" / "vramwise" / FILE).write_text(body + "\n")


def main() -> None:
    """Trace what is asked for, or write the file."""
    import transformers

    path, *more = sys.argv[1:]
    rows = {}
    if Path(path).is_file():
        rows = {row["type"]: row for row in map(json.loads, Path(path).read_text().splitlines())}
    if more == ["--write"]:
        write(rows, transformers.__version__)
        return
    transformers.logging.set_verbosity_error()
    from vramwise.tracing.passes import warm_up

    warm_up()  # once for all processes
    unknown = [name for name in types() if not (find_type(name) or find_type(f"{name}_text"))]
    with Path(path).open("a") as file:
        for name in more or [name for name in unknown if name not in rows]:
            row = {"type": name, **forked(name)}
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(name, row.get("error", "made"), flush=True)


if __name__ == "__main__":
    main()
