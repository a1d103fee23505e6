"""Finds the tower of a multimodal model: in a module of this folder by model_type, or among the common encoders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from vramwise.families import towers
from vramwise.families.config_fields import Fields
from vramwise.families.towers.encoders import DEFAULTS, ENCODERS, PROJECTED, projector
from vramwise.families.towers.parts import Maker


def around(config: Mapping[str, Any], *, text_hidden: int, source: str) -> dict[str, Any]:
    """Return the ModelSpec fields about everything except the text model."""
    outer = Fields(config, {"num_channels": 3}, source)
    vision = outer.mapping("vision_config")
    maker = _makers().get(outer.text("model_type") or "")
    if maker is not None:
        return maker(outer, text_hidden)
    if not vision:
        missing = "audio_config" if outer.mapping("audio_config") else ""
        return {"text_part": "language_model", "left_out": missing} if missing else {}
    tower_type = Fields(vision, {}, f"{source} (vision_config)").text("model_type") or ""
    model_type = outer.text("model_type") or ""
    if tower_type not in DEFAULTS or model_type not in PROJECTED:
        return {"text_part": "language_model", "left_out": f"vision_config ({tower_type or model_type})"}
    fields = Fields(vision, DEFAULTS[tower_type], f"{source} (vision_config)")
    parts = [*ENCODERS[tower_type](fields), *projector(outer, fields, model_type, text_hidden)]
    return {
        "text_part": "language_model",
        "tower": tuple((f"model.{name}", shape, kind) for name, shape, kind in parts),
    }


@cache
def _makers() -> dict[str, Maker]:
    """Return the towers of every module in this folder, by the model_type of the whole model."""
    modules = [import_module(f"{towers.__name__}.{found.name}") for found in iter_modules(towers.__path__)]
    return {name: maker for module in modules for name, maker in getattr(module, "TOWERS", {}).items()}
