"""Puts Axolotl's LoRA kernels into a PEFT model, as Axolotl does, from a checkout of its source.

bitsandbytes is replaced by a stand-in: nothing is quantised here.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import textwrap
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

QKV = tuple(
    (f"{name}_states = self.{name[0]}_proj(hidden_states)", f"{name}_states = {name}_states")
    for name in ("query", "key", "value")
)


def install(source: Path) -> Any:
    """Make `axolotl.kernels.lora` importable from a checkout, and return it."""
    bitsandbytes = types.ModuleType("bitsandbytes")
    functional = types.ModuleType("bitsandbytes.functional")
    functional.QuantState = type("QuantState", (), {})  # type: ignore[attr-defined]
    functional.get_ptr = functional.lib = MagicMock()  # type: ignore[attr-defined]
    bitsandbytes.functional = functional  # type: ignore[attr-defined]
    sys.modules |= {"bitsandbytes": bitsandbytes, "bitsandbytes.functional": functional}
    for name in ("axolotl", "axolotl.utils", "axolotl.kernels"):
        module = types.ModuleType(name)
        module.__path__ = [str(source / name.replace(".", "/"))]
        sys.modules[name] = module
    log = types.ModuleType("axolotl.utils.logging")
    log.get_logger = logging.getLogger  # type: ignore[attr-defined]
    sys.modules["axolotl.utils.logging"] = log
    return importlib.import_module("axolotl.kernels.lora")


def patch(model: Any, source: Path) -> None:
    """Replace projections and feed-forward layers by the fused ones."""
    kernels = install(source)
    layers = model.get_base_model().model.layers
    attention = type(layers[0].self_attn)
    text = textwrap.dedent(inspect.getsource(attention.forward)).replace("self.o_proj(", "self.apply_o(")
    first = text.index("    query_states = self.q_proj")
    text = f"{text[:first]}    query_states, key_states, value_states = self.apply_qkv(hidden_states)\n{text[first:]}"
    for old, new in QKV:
        assert old in text
        text = text.replace(old, new)
    names = dict(vars(sys.modules[attention.__module__]))
    exec(text, names)
    attention.forward = names["forward"]
    for layer in layers:
        layer.self_attn.apply_qkv = types.MethodType(kernels.apply_lora_qkv, layer.self_attn)
        layer.self_attn.apply_o = types.MethodType(kernels.apply_lora_o, layer.self_attn)
        layer.mlp.forward = types.MethodType(kernels.apply_lora_mlp_swiglu, layer.mlp)
