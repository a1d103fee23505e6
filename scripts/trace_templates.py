"""Make the traces that ship with vramwise: a template a model type, good for any dimensions.

    python scripts/trace_templates.py FOLDER [TYPE …] [--workers N] [--seconds S]   # traces types, a file a type
    python scripts/trace_templates.py FOLDER --write       # writes src/vramwise/models/trace_templates.json from them

Tracing needs torch and transformers. A type is traced at four sets of dimensions, in a process of its own. From the
first three, formulas are found. A type whose numbers follow no formula, or whose layers follow no known rule, gets no
template and the reason is printed. At the fourth set, a template must give what tracing gives.
"""

from __future__ import annotations

import argparse
import json
import logging
import lzma
import os
import resource
import signal
import sys
import time
import zlib
from base64 import b85encode
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

from model_types import types  # noqa: E402
from typical_configs import typical_config  # noqa: E402
from vramwise.models.families import find_type  # noqa: E402
from vramwise.models.templates import FILE, HEADS, SHARED, WIDTH, NotCovered, filled, layer_words, with_width  # noqa: E402

MODES = ("bf16, autocast", "bf16, fp32 norms, fp32 tables, autocast", "bf16, fp32 norms, autocast")
_SECONDS, _MEMORY = 300, 12 * 1024**3
# Four sets of dimensions. Widths are multiples of 8, heads divide among groups, and no two are alike in a set.
_HEADS = ((16, 4, 40), (12, 6, 24), (20, 10, 56), (24, 8, 32))
_VALUES: dict[str, tuple[int, int, int, int]] = {
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), (656, 424, 904, 1048)),
    **dict.fromkeys(("decoder_ffn_dim", "dense_intermediate_size"), (720, 472, 968, 1112)),
    "prefix_dense_intermediate_size": (728, 488, 984, 1128),
    "vocab_size": (1048, 1192, 1304, 1432),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), (4096, 5120, 6144, 7168)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), (48, 16, 40, 64)),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token"), (3, 5, 7, 2)),
    "moe_intermediate_size": (184, 248, 328, 136),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size"), (296, 344, 376, 152)),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), (2, 1, 3, 4)),
    "q_lora_rank": (104, 152, 136, 88),
    "kv_lora_rank": (88, 72, 120, 168),
    "qk_rope_head_dim": (16, 32, 48, 64),
    "qk_nope_head_dim": (56, 40, 80, 104),
    "v_head_dim": (72, 64, 112, 96),
    "rotary_dim": (24, 16, 40, 8),
    "router_hidden_size": (136, 184, 88, 232),
    **dict.fromkeys(("sliding_window", "sliding_window_size"), (1000, 1100, 1200, 1300)),
    **dict.fromkeys(("mamba_d_state", "state_size"), (64, 48, 80, 112)),
}
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "decoder_layers", "num_decoder_layers")
_WIDE = ("hidden_size", "n_embd", "d_model")
_MAMBA = (4, 2, 8, 4)  # heads of a scan that is twice as wide, for each head of attention
_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
_UNTIL = ("moe_layer_end_index",)
_LISTED = ("mlp_only_layers", "attn_layer_indices", "attn_layer_idxs", "full_attn_idxs", "hybrid_layer_ids")
# where they differ, the code does something else
_EQUAL = {
    "word_embed_proj_dim": "hidden_size",
    "encoder_layers": "decoder_layers",
    "encoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "decoder_ffn_dim",
    "decoder_vocab_size": "vocab_size",
    "n_ctx": "n_positions",
}


_MUST_BE_GIVEN = ("n_routed_experts", "n_shared_experts", "num_experts_per_tok")


def dimensions(base: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The fields of one set that a config has, without those that list layers."""
    heads, groups, width = _HEADS[place]
    found = {key: values[place] for key, values in _VALUES.items() if key in base and _open(key, base[key])}
    wide = {**dict.fromkeys(HEADS, heads), **dict.fromkeys(_WIDE, heads * width)}
    if "mamba_n_heads" in base and "mamba_d_head" in base:
        wide |= {"mamba_n_heads": heads * _MAMBA[place], "mamba_d_head": width * 2 // _MAMBA[place]}
    if "num_heads" in base and "expand" in base:
        return {**found, "hidden_size": heads * width, "num_heads": 2 * heads, "head_dim": width}
    found |= {key: value for key, value in wide.items() if isinstance(base.get(key), int)}
    if isinstance(base.get("num_key_value_heads", ""), int | None) and not base.get("multi_query"):
        alike = base["num_key_value_heads"] == base.get("num_attention_heads")
        found["num_key_value_heads"] = heads if alike and "kv_lora_rank" in base else groups
    if isinstance(base.get("head_dim", ""), int | None) and "qk_rope_head_dim" not in base:
        found["head_dim"] = width + 8  # never what the width divided by the heads is
    return found


def _open(key: str, value: Any) -> bool:
    """Whether a template may leave a field open: a number, or experts whose number every config must say."""
    return (isinstance(value, int) and value > 0) or (value is None and key in _MUST_BE_GIVEN)


def layer_fields(base: Mapping[str, Any], count: int) -> list[tuple[str, str]]:
    """The fields of a config that say of which kind each layer is, and how: see `layer_words`."""
    found = [(key, "each") for key, value in base.items() if _a_word_a_layer(value, count)]
    found += [(key, "in") for key in _LISTED if isinstance(base.get(key), list)]
    found += [(key, "first") for key in _FIRST if isinstance(base.get(key), int)]
    return found + [(key, "until") for key in _UNTIL if isinstance(base.get(key), int)]


def _a_number_a_layer(value: Any, base: Mapping[str, Any]) -> bool:
    """Whether a field lists whole numbers for its layers, which a template keeps as they are."""
    count = base[layers_field(base)]
    return isinstance(value, list) and len(value) == count and all(type(one) is int for one in value)


def _a_word_a_layer(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(one, str) for one in value)


def layers_of_set(base: Mapping[str, Any], name: str, place: int) -> dict[str, Any]:
    """The fields of one set that say how many layers there are and which: one of each kind, and more of the last."""
    count = base[name]
    by = layer_fields(base, count)
    words = layer_words(base, by, {}, count)
    sources = sorted({word: layer for layer, word in reversed(list(enumerate(words)))}.values())
    sources += [sources[-1]] * (max(3 - len(sources), 1) + place)
    found: dict[str, Any] = {name: len(sources)}
    for key, value in base.items():
        if isinstance(value, list) and len(value) == count:
            found[key] = [value[layer] for layer in sources]
    for key, way in by:
        if way == "in":
            found[key] = [place for place, layer in enumerate(sources) if layer in base[key]]
        elif way == "first":
            found[key] = sum(layer < base[key] for layer in sources)
        elif way == "until":
            found[key] = len(sources) - 1
    return found


def configs(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The typical config of a type, and it with each set of dimensions."""
    base = plain({**typical_config(name).to_dict(), "model_type": name})
    depth = layers_field(base)
    found = []
    for place in range(4):
        fields = {**dimensions(base, place), **layers_of_set(base, depth, place)}
        fields |= {key: fields[other] for key, other in _EQUAL.items() if key in base and other in fields}
        made = typical_config(name, **{**fields, "tie_word_embeddings": False, "pad_token_id": 0})
        config = plain(made.to_dict())
        found.append({**config, **fields, "model_type": name, "tie_word_embeddings": False})
    return base, found


def layers_field(base: Mapping[str, Any]) -> str:
    """The field that has the number of layers."""
    found = next((key for key in _LAYERS if isinstance(base.get(key), int)), None)
    if found is None:
        raise NoFormula("its language model is a part of another config")
    return found


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
        simple = []
        for words, seen in self.products:
            ratios = {Fraction(value, one) for value, one in zip(values, seen, strict=True)}
            if len(ratios) == 1 and (ratio := ratios.pop()).denominator <= 16 and ratio.numerator <= 64:
                simple.append((len(words), ratio.numerator * ratio.denominator, [[*ratio.as_integer_ratio(), *words]]))
        yield from [formula for *_, formula in sorted(simple)]  # fields may be in proportion: the simplest factor
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
                if len(ratios) == 1 and (ratio := ratios.pop()).denominator <= 2 and -2 < ratio.numerator <= 8:
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


def traces(name: str) -> dict[str, Any]:
    """What a template is made of: the default config of a type, configs of four sets of dimensions and their traces."""
    from vramwise.models.recorder.document import document

    base, sets = configs(name)
    keys = dimension_fields(base)
    defaults = {key: _defaults(name, key, [{key: one[key] for key in keys} for one in sets[:3]]) for key in keys}
    return {
        "base": base,
        "sets": sets,
        "defaults": defaults,
        "documents": [plain(document(config, MODES)) for config in sets],
    }


def dimension_fields(base: Mapping[str, Any]) -> list[str]:
    """The fields whose values a template leaves open."""
    depth = layers_field(base)
    counted = [key for key, way in layer_fields(base, base[depth]) if way == "first"]
    return [*dimensions(base, 0), depth, *counted]


def template(traced: Mapping[str, Any]) -> dict[str, Any]:
    """The template of a type."""
    base, sets, documents = traced["base"], traced["sets"], traced["documents"]
    keys = dimension_fields(base)
    fields = [with_width({key: one[key] for key in keys}) for one in sets]
    formulas = Formulas(fields[:3])
    shared = [{key: value for key, value in one.items() if key not in ("kinds", "parameters")} for one in documents]
    made = {
        "fields": {key: value for key, value in base.items() if not isinstance(value, dict | list)},
        "dimensions": {key: _default(base, key, fields[:3], traced["defaults"][key]) for key in keys},
        "derived": _derived(formulas, base, sets[:3], keys),
        "layers_field": layers_field(base),
        "lists": {key: sorted(set(value)) for key, value in base.items() if _a_number_a_layer(value, base)},
        "equal": {key: other for key, other in _EQUAL.items() if key in base},
        "kinds": kind_rule(base, sets, [one["kinds"] for one in documents]),
        **numbered(joined(formulas, shared[:3])),
        **parameters(formulas, documents[:3]),
    }
    if plain(filled(made, sets[3])) != documents[3]:
        raise NoFormula("the fourth set of dimensions gives another trace")
    return made


def numbered(document: dict[str, Any]) -> dict[str, Any]:
    """The document with numbers in place of steps, and the steps that they stand for."""
    numbers: dict[str, int] = {}
    for ways in document["modes"].values():
        for way in ways.values():
            between = [layer["between"] for layer in way["layers"] if "between" in layer]
            for program in (way["before"], way["after"], *way["layers"], *between):
                words = [json.dumps(step) for step in program["steps"]]
                program["steps"] = [numbers.setdefault(word, len(numbers)) for word in words]
    return {"document": document, "steps": [json.loads(word) for word in numbers]}


def _derived(
    formulas: Formulas, base: Mapping[str, Any], sets: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, Any]:
    """Fields that a config works out from others."""
    found = {}
    for key in base:
        values = tuple([one.get(key) for one in sets])
        if (
            key not in (*keys, *_EQUAL, *_UNTIL)
            and all(type(value) is int for value in values)
            and len(set(values)) > 1
        ):
            found[key] = formulas(values)
    return found


def _default(base: Mapping[str, Any], key: str, sets: Sequence[Mapping[str, int]], found: Sequence[Any]) -> Any:
    """What a field is where a config does not say it: a number, or a formula of the others."""
    if not all(isinstance(one, int) for one in found):
        return base[key]
    without = [
        with_width({word: value for word, value in fields.items() if word not in (key, WIDTH, SHARED)})
        for fields in sets
    ]
    try:
        return Formulas(without)(tuple(found))
    except NoFormula:
        return None  # every config must say it


def _defaults(name: str, key: str, sets: Sequence[Mapping[str, int]]) -> list[Any]:
    """What a type's config makes of a field where it is left out, at each set."""
    found = []
    for fields in sets:
        try:
            config = typical_config(name, **{word: value for word, value in fields.items() if word != key})
            found.append(getattr(config, key, None))
        except Exception:  # the config refuses dimensions that do not divide: the field must be given with them
            found.append(None)
    return found


def kind_rule(
    base: Mapping[str, Any], sets: Sequence[Mapping[str, Any]], kinds: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """How a config says which kind each layer is of: the fields, the kind of each word, and words that can be left out.

    Where no field tells kinds apart, the last or the first layer may be another. Words that were not traced are not
    covered.
    """
    count = base[layers_field(base)]
    plain_by = layer_fields(base, count)
    for by in (plain_by, [*plain_by, ("", "last")], [*plain_by, ("", "lead")]):
        seen = [layer_words(config, by, {}, len(one)) for config, one in zip(sets, kinds, strict=True)]
        pairs = {pair for words, one in zip(seen, kinds, strict=True) for pair in zip(words, one, strict=True)}
        if len(pairs) == len({word for word, _ in pairs}):
            single = {key: set(layer_words(base, [(key, way)], {}, count)) for key, way in by if key}
            default = {key: next(iter(words)) for key, words in single.items() if len(words) == 1}
            return {"by": by, "kinds": dict(sorted(pairs)), "default": default}
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


def forked(name: str, into: Path, ends: float | None) -> str:
    """Trace a type in a process of its own, which is stopped at the time `ends`; returns what came of it."""
    out, answer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if ends is not None:
            signal.alarm(max(int(ends - time.time()), 1))
        try:
            body = lzma.compress(json.dumps(traces(name)).encode())
            into.with_suffix(".part").write_bytes(body)
            into.with_suffix(".part").rename(into)
            word = f"traced in {time.process_time():.1f} s"
        except Exception as error:
            word = f"{type(error).__name__}: {str(error)[:200]}"
        os.write(answer, word.encode())
        os._exit(0)
    os.close(answer)
    with os.fdopen(out) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text or "it took too long or too much memory"


def traced_type(asked: tuple[str, Path, float | None]) -> str:
    """A line on a type, traced where there is time left."""
    name, into, ends = asked
    if ends is not None and time.time() > ends - 5:
        return f"{name}: not begun"
    return f"{name}: {forked(name, into, ends)}"


def described(name: str) -> bool:
    """Whether a family describes a type."""
    return bool(find_type(name) or find_type(f"{name}_text"))


def untried(name: str) -> str:
    """Why a type is not traced at other dimensions; empty where its config allows that."""
    try:
        configs(name)
    except NoFormula as error:
        return str(error)
    except Exception:
        return "its config refuses the dimensions that are tried"
    return ""


def write(folder: Path) -> None:
    """The file that ships, with the traces of a folder in place of its own. All must be of one release."""
    shipped = json.loads((ROOT / "src" / "vramwise" / FILE).read_text())
    packed, without, sources = dict(shipped["types"]), dict(shipped["without"]), {shipped["source"]}
    for path in sorted(folder.glob("*.xz")):
        if described(path.stem):
            continue
        traced = json.loads(lzma.decompress(path.read_bytes()))
        sources.add(traced["documents"][0]["source"])
        try:
            text = json.dumps(template(traced), separators=(",", ":"))
        except (NoFormula, NotCovered) as error:
            print(f"{path.stem}: {type(error).__name__}: {error}")
            without[path.stem] = "numbers of its trace follow no formula of its config"
            packed.pop(path.stem, None)
            continue
        without.pop(path.stem, None)
        packed[path.stem] = b85encode(zlib.compress(text.encode(), 9)).decode()
        print(f"{path.stem}: {len(packed[path.stem])} bytes", flush=True)
    for name in types():
        if not (described(name) or (folder / f"{name}.xz").is_file()) and (why := untried(name)):
            without.setdefault(name, why)
    if len(sources) != 1:
        sys.exit(f"traces of more than one release: {sorted(sources)}")
    body = json.dumps(
        {"source": sources.pop(), "types": dict(sorted(packed.items())), "without": dict(sorted(without.items()))},
        indent=0,
    )
    (ROOT / "src" / "vramwise" / FILE).write_text(body + "\n")


def warm_up_once() -> None:
    """Load what all processes need. A CUDA build's backward starts threads, which forked processes cannot have."""
    import torch

    from vramwise.models.recorder.passes import build, warm_up

    if torch.version.cuda is None:
        warm_up()
    else:
        from transformers import LlamaConfig

        with torch.device("meta"):
            build(LlamaConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=1), torch.bfloat16)


def trace(folder: Path, asked: Sequence[str], workers: int, seconds: float | None) -> None:
    """Trace types, all that have no family and no trace yet where none is named."""
    import transformers

    ends = None if seconds is None else time.time() + seconds
    transformers.logging.set_verbosity_error()
    logging.disable(logging.ERROR)  # torch's own log of what fails
    warm_up_once()
    folder.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in types() if not described(name)]
    places = [(name, folder / f"{name}.xz", ends) for name in asked or unknown]
    with get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        for line in pool.imap_unordered(traced_type, [one for one in places if asked or not one[1].is_file()]):
            print(line, flush=True)


def main() -> None:
    """Trace what is asked for, or write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="stop after this time")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.folder)
    else:
        trace(arguments.folder, arguments.types, arguments.workers, arguments.seconds)


if __name__ == "__main__":
    main()
