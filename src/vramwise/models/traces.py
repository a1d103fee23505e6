"""Turn a parsed trace document into a `ModelSpec`. Pure: reads no files, imports no torch.

A trace may come from anyone: every name, number and position in it is checked before use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.types import ModelSpec
from vramwise.types.model import Trace

FORMAT = 2
# as for models that families describe
_MOST_LAYERS, _MOST_STEPS, _MOST_PARAMETERS, _LARGEST = 320, 50_000, 200_000, 2**31
_MARKS = {"mask", "wants", "del", "enter", "leave", "window"}
_CALLS = {"op", "linear", "attention", "sdpa", "embedding", "dropout", *_MARKS}
_KINDS = {"embedding", "linear", "conv1d", "bias", "norm", "lm_head", "experts", "router", "other"}
_TYPES = {"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"}
_SIZES = {
    "hidden_size",
    "vocab_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "tie_word_embeddings",
    "lm_head_bias",
}


def model_from_trace(document: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """Return the model that a trace describes. `source` names the file in messages and in the spec.

    Raises VramwiseError for another format or an incomplete trace.
    """
    if document.get("format") != FORMAT:
        raise VramwiseError(f"{source}: is not a trace of this version: trace the model again")
    try:
        _check(document)
        return _model(document, name, source)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise VramwiseError(f"{source}: is not a whole trace ({type(error).__name__}: {error})") from error


def _model(document: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    sizes = dict(document["sizes"])
    kinds = tuple(document["kinds"])
    mode = next(iter(document["modes"].values()))["all"]
    windows = [layer["window"] for layer in mode["layers"]]
    calls = [row for layer in mode["layers"] for row in layer["steps"] if row["k"] == "attention"]
    tail = mode["tail"]
    capped = any(word.startswith("tanh") for word in tail)
    trace = Trace(
        source=document["source"],
        parameters=tuple((item, tuple(shape), kind, layer) for item, shape, kind, layer in document["parameters"]),
        layers=document["layers"],
        embedding=document["embedding"],
        final_norm=document["final_norm"],
        head="lm_head" if sizes["tie_word_embeddings"] else document["head"].removesuffix(".weight"),
        kinds=kinds,
        experts_like=document["experts_like"],
        wide_logits=any(word.startswith("_to_copy") for word in tail),
        eager=document.get("attention") == "eager",
        always_masked=document.get("attention") == "masked",
        scaled_logits=not capped and any(word.startswith(("mul", "div")) for word in tail),
        modes=document["modes"],
    )
    types = tuple("sliding_attention" if windows[kind] else "full_attention" for kind in kinds)
    return ModelSpec(
        name=name,
        source=source,
        model_type=document["model_type"],
        family="traced",
        **sizes,
        head_dim=sizes["hidden_size"] // sizes["num_attention_heads"],
        rotary_fraction=0.0,
        sliding_window=next((window for window in windows if window), None),
        layer_types=types if any(windows) else (),
        final_logit_softcapping=30.0 if capped else None,
        attn_logit_softcapping=50.0 if any(row["softcap"] for row in calls) else None,
        attention_dropout=max((row.get("dropout", 0.0) for row in calls), default=0.0),
        trace=trace,
    )


def _check(document: Mapping[str, Any]) -> None:
    for key in ("source", "model_type", "layers", "embedding", "final_norm", "head", "experts_like"):
        _wanted(isinstance(document[key], str) and len(document[key]) < 1000, key)
    _wanted(set(document["sizes"]) == _SIZES, "sizes")
    for value in document["sizes"].values():
        _wanted(isinstance(value, bool) or 0 < _whole(value) < _LARGEST, "sizes")
    kinds, ways = document["kinds"], [way for mode in document["modes"].values() for way in mode.values()]
    _wanted(0 < len(kinds) <= _MOST_LAYERS and len(kinds) == document["sizes"]["num_hidden_layers"], "kinds")
    _wanted(0 < len(document["parameters"]) <= _MOST_PARAMETERS, "parameters")
    for name, shape, kind, layer in document["parameters"]:
        _wanted(isinstance(name, str) and kind in _KINDS and len(shape) <= 8, "parameters")
        _wanted(all(0 <= _whole(side) < _LARGEST for side in shape), "parameters")
        _wanted(layer is None or 0 <= _whole(layer) < len(kinds), "parameters")
    _wanted(bool(ways) and all({"all", "frozen"} <= set(mode) for mode in document["modes"].values()), "modes")
    for way in ways:
        _wanted(all(0 <= _whole(kind) < len(way["layers"]) for kind in kinds), "kinds")
        _wanted(all(isinstance(word, str) for word in way["tail"]), "tail")
        for program in (way["before"], way["after"], *way["layers"]):
            _check_program(program)
        for layer in way["layers"]:
            _check_exchange(layer)
        made = {item[0] for step in way["before"]["steps"] for item in step.get("o", ())}
        _wanted(set(way["before"]["held"]) <= made, "held tensors")


def _check_program(program: Mapping[str, Any]) -> None:
    _wanted(len(program["steps"]) <= _MOST_STEPS, "steps")
    _names(program["given"], program["parameters"], [program["result"]])
    window = program.get("window")
    _wanted(window is None or 0 < _whole(window) < _LARGEST, "window")
    for step in program["steps"]:
        _wanted(step["k"] in _CALLS, "steps")
        _names(step["i"])
        if step["k"] in _MARKS:
            continue
        for made, source, dtype, shape, _ in step["o"]:
            _names([made], [] if source is None else [source])
            _form(dtype, shape)
        if step.get("n") is not None:
            _check_node(step["n"], len(step["i"]), len(step["o"]))


def _check_exchange(layer: Mapping[str, Any]) -> None:
    """What a layer is handed, takes from earlier layers and leaves for later ones."""
    given, made = set(layer["given"]), {item[0] for step in layer["steps"] for item in step.get("o", ())}
    handed, takes, leaves = layer.get("handed", []), layer.get("takes", []), layer.get("leaves", [])
    _names(handed, *takes, *leaves, *layer.get("sources", []))
    _wanted(given.issuperset([*handed, *[name for _, name in takes]]), "handed tensors")
    _wanted({*given, *made}.issuperset(name for _, name in leaves), "tensors for later layers")
    if "between" in layer:
        between = layer["between"]
        _check_program(between)
        made = {item[0] for step in between["steps"] for item in step.get("o", ())}
        _wanted({*between["given"], *made}.issuperset([layer["given"][0]]), "tensors between layers")


def _check_node(node: Mapping[str, Any], inputs: int, results: int) -> None:
    _names([edge for edge in node["e"] if edge is not None])
    _wanted(all(-results <= _whole(place) < inputs for place in node["s"]), "saved tensors")
    made = 0
    for row in node["b"]:
        if row[0] == "del":
            _wanted(0 <= _whole(row[1]) < made, "backward steps")
        elif row[0] != "use":
            _form(row[1], row[2])
            made += 1
    for row in node["g"]:
        if row is not None:
            _wanted(0 <= _whole(row[1]) < max(made if row[0] == "new" else len(node["q"]), 1), "gradients")
            if row[0] != "same":
                _form(row[2], row[3])


def _form(dtype: str, shape: list[Any]) -> None:
    _wanted(dtype in _TYPES and len(shape) <= 16, "shapes")
    for side in shape:
        if isinstance(side, list):
            _wanted(len(side) == 6 and side[0] == "@" and _whole(side[2]) > 0, "shapes")
            _wanted(all(abs(_whole(part)) < _LARGEST for part in side[1:]), "shapes")
        else:
            _wanted(0 <= _whole(side) < _LARGEST, "shapes")


def _names(*lists: list[str]) -> None:
    for names in lists:
        _wanted(all(isinstance(name, str) for name in names), "names")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.40} is not a whole number")
    return value


def _wanted(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(f"{what} are not as expected")
