"""The parameters of a multimodal model besides its text model: the towers and the projector.

They are loaded and take memory even if only text is trained. Each module here lists the towers of some model types in
`TOWERS` and is found automatically. `around` has the common ones. Any other tower is reported as left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The parts of a multimodal model's config.json.
_PARTS = ("text_config", "vision_config", "audio_config")
# Multimodal models whose config.json may contain the text model's fields directly, without parts.
_WITHOUT_PARTS = ("qwen2_vl", "qwen2_5_vl")


def around_text(config: Mapping[str, Any], *, text_hidden: int, source: str) -> dict[str, Any]:
    """Return the ModelSpec fields about everything except the text model. Empty for a plain text model."""
    if not any(part in config for part in _PARTS) and config.get("model_type") not in _WITHOUT_PARTS:
        return {}
    from vramwise.models.families.towers.around import around  # late: most models have no tower

    return around(config, text_hidden=text_hidden, source=source)
