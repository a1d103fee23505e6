"""Builds the trace of a model: its parameters, its kinds of layers, and its programs for each precision."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from vramwise.models.recorder.merging import check, merge, sizes
from vramwise.models.recorder.passes import build, layers_of, run_pass
from vramwise.models.recorder.programs import programs

FORMAT = 2
# The dtype of the weights, which of them are kept in fp32 (by Axolotl, or by PEFT on a quantised base), autocast.
MODES = (
    "bf16, autocast",
    "bf16",
    "bf16, fp32 norms, fp32 tables, autocast",
    "bf16, fp32 norms, autocast",
    "fp32, autocast",
    "fp32",
)
_PLAIN = (int, float, str, bool, type(None))
_SET_BY_PLACE = re.compile(r"(.*_)?(idx|index|number|id)")


def document(
    config: Mapping[str, Any], modes: Sequence[str], code: Path | None = None, made: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Return the trace of the model of a config.json in these modes. Modes that fail are left out.

    `code`: the folder of the model's own code, if it is to be run; `made`: the config object and the class, if they are
    loaded already. If every mode fails, the first error is raised.
    """
    import transformers

    found: dict[str, Any] = {
        "format": FORMAT,
        "source": f"transformers {transformers.__version__}",
        "torch": torch.__version__,
        "model_type": config["model_type"],
    }
    recorded: dict[str, Any] = {}
    failed: dict[str, Exception] = {}
    for mode in modes:
        try:
            recorded[mode] = _mode(made or _config(config, code), mode, found)
        except Exception as error:  # another precision may work: torch has no grouped products in fp32
            failed[mode] = error
    if not recorded:
        raise next(iter(failed.values()))
    found["modes"] = recorded
    return found


def _config(config: Mapping[str, Any], code: Path | None) -> tuple[Any, Any]:
    """Return the config object, and the model class if it comes from the model's own code, else None."""
    from transformers import AutoConfig

    from vramwise.models.recorder.own_code import class_of

    values = {key: value for key, value in config.items() if key not in ("quantization_config", "auto_map")}
    kind = values.pop("model_type")
    if code is None:
        return AutoConfig.for_model(kind, **values), None
    return class_of(config, "AutoConfig", code)(**values), class_of(config, "AutoModelForCausalLM", code)


def _mode(of: tuple[Any, Any], mode: str, found: dict[str, Any]) -> dict[str, Any]:
    fake = FakeTensorMode()
    read, own = of
    with fake:
        model = build(read, torch.bfloat16 if mode.startswith("bf16") else torch.float32, own)
        _widen(model, mode)
    name, layers = layers_of(model, read.get_text_config().num_hidden_layers)
    at = sizes(_positions(read.get_text_config()))
    amp = "autocast" in mode
    kinds = _Kinds(layers)
    if "kinds" not in found:
        probe = run_pass(model, fake, layers, set(kinds.running), rows=at[0].rows, tokens=at[0].tokens, amp=amp)
        found["kinds"] = _Kinds(layers, first_apart=probe.exchange).of_layers
        if probe.mask:
            found["attention"] = probe.mask
    if found["kinds"] != kinds.of_layers:
        kinds = _Kinds(layers, first_apart=True)
    if "parameters" not in found:
        found |= _described(model, read, name, len(layers))
    ways = {}
    experts = frozenset(item for item, _, kind, _ in found["parameters"] if kind == "experts")
    wide = mode.startswith("bf16") and amp
    for way in ("all", "frozen", *(["experts"] if experts else []), *(["wide"] if wide else [])):
        running = kinds.running if way != "wide" else kinds.with_first_apart()
        seen = [
            programs(
                run_pass(
                    model, fake, layers, set(running),
                    rows=size.rows, tokens=size.tokens, amp=amp, way=way, experts=experts,
                ),
                name,
                running,
                found["head"],
            )
            for size in at
        ]  # fmt: skip
        ways[way] = merge(at, *seen[:3])
        check(ways[way], seen[3], at[3])
    return ways


class _Kinds:
    """Groups identical layers into kinds. `first_apart`: the first layer is a kind of its own."""

    def __init__(self, layers: Any, *, first_apart: bool = False) -> None:
        self._signatures = [_signature(layer) for layer in layers]
        if first_apart:
            self._signatures[0] += "first"
        first = {signature: number for number, signature in reversed(list(enumerate(self._signatures)))}
        self.running = {number: kind for kind, number in enumerate(sorted(first.values()))}  # layer to kind
        self.of_layers = [self.running[first[signature]] for signature in self._signatures]

    def with_first_apart(self) -> dict[int, int]:
        """Return the layers to run, and their kinds, when the first layer's input has another dtype than the others'.

        If another layer is like the first, the first becomes a further kind, numbered last. The next layer like it
        then represents its former kind.
        """
        alike = [layer for layer, one in enumerate(self._signatures) if one == self._signatures[0]]
        if len(alike) == 1:
            return self.running
        return {**self.running, alike[1]: self.running[0], 0: len(self.running)}


def _widen(model: Any, mode: str) -> None:
    """Convert norms, or the embedding and head tables, to fp32 if the mode says so."""
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    wide: dict[int, torch.nn.Parameter] = {}  # tied weights stay tied
    for module in model.modules():
        norm = "norm" in type(module).__name__.lower() and not list(module.children())
        if ("fp32 norms" in mode and norm) or ("fp32 tables" in mode and module in tables):
            for name, parameter in list(module.named_parameters(recurse=False)):
                if id(parameter) not in wide:
                    wide[id(parameter)] = torch.nn.Parameter(parameter.detach().float())
                setattr(module, name, wide[id(parameter)])


def _signature(layer: Any) -> str:
    """Return a description of a layer's modules. Layers with equal signatures are treated as identical.

    Of a float attribute, only whether it is 0 counts.
    """
    parts = []
    for name, module in layer.named_modules():
        plain = {
            key: bool(value) if isinstance(value, float) else value
            for key, value in vars(module).items()
            if isinstance(value, _PLAIN) and not _SET_BY_PLACE.fullmatch(key) and not key.startswith("_")
        }
        shapes = [(key, tuple(value.shape)) for key, value in module.named_parameters(recurse=False)]
        parts.append((name, type(module).__name__, sorted(plain.items(), key=str), shapes))
    return repr(parts)


def _described(model: Any, config: Any, layers: str, count: int) -> dict[str, Any]:
    text = config.get_text_config()
    table = model.get_input_embeddings()
    output = model.get_output_embeddings()
    names = {id(module): name for name, module in model.named_modules()}
    embedding = names[id(table)]
    weights = {id(parameter): name for name, parameter in model.named_parameters()}
    after = [
        name
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower()
        and not name.startswith(f"{layers}.")
        and name.startswith(layers.rpartition(".")[0])
    ]
    return {
        "layers": layers,
        "embedding": embedding,
        "final_norm": after[-1] if after else "",
        "head": weights[id(output.weight)],
        "parameters": _parameters(model, layers, names[id(output)]),
        "experts_like": _conversion(text.model_type),
        "sizes": {
            "hidden_size": int(table.weight.shape[1]),
            "vocab_size": int(table.weight.shape[0]),
            "intermediate_size": _integer(text, "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
            or 4 * int(table.weight.shape[1]),
            "num_hidden_layers": count,
            "num_attention_heads": _integer(text, "num_attention_heads", "n_head") or 1,
            "num_key_value_heads": _integer(text, "num_key_value_heads", "num_attention_heads", "n_head") or 1,
            "max_position_embeddings": _positions(text),
            "tie_word_embeddings": weights[id(output.weight)] == f"{embedding}.weight",
            "lm_head_bias": getattr(output, "bias", None) is not None,
        },
    }


def _conversion(model_type: str) -> str:
    """Return the model type whose old expert names PEFT uses for this type's weights, or "" if it renames none."""
    try:
        from transformers.conversion_mapping import _MODEL_TO_CONVERSION_PATTERN as KNOWN
    except ImportError:
        return ""
    found = str(KNOWN.get(model_type, ""))
    return found if found in ("mixtral", "qwen2_moe") else ""


def _positions(config: Any) -> int:
    return _integer(config, "max_position_embeddings", "n_positions") or 131072


def _integer(config: Any, *names: str) -> int | None:
    for name in names:
        try:
            value = getattr(config, name, None)
        except Exception:  # configs whose layers differ raise for a value that is not the same in all
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _parameters(model: Any, layers: str, head: str) -> list[list[Any]]:
    """Return the name, shape, kind and layer (or None) of every parameter."""
    owners = dict(model.named_modules())
    found = []
    for name, parameter in model.named_parameters():
        module, _, leaf = name.rpartition(".")
        kind = "lm_head" if module == head else _kind(owners[module], leaf, parameter)
        inside = name.removeprefix(f"{layers}.").partition(".")[0] if name.startswith(f"{layers}.") else ""
        found.append([name, list(parameter.shape), kind, int(inside) if inside.isdigit() else None])
    return found


def _kind(module: Any, leaf: str, parameter: Any) -> str:
    word = type(module).__name__
    if isinstance(module, torch.nn.Linear):
        return "linear" if leaf == "weight" else "bias"
    if word == "Conv1D":
        return "conv1d" if leaf == "weight" else "bias"
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    if "norm" in word.lower():
        return "norm"
    if parameter.dim() == 3 and "xpert" in word:
        return "experts"
    if parameter.dim() == 2 and leaf == "weight" and "outer" in word:
        return "router"
    return "other"
