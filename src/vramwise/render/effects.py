"""What a fix does to the training, in the same words wherever it is shown."""

from __future__ import annotations

from vramwise.types import Fix


def effect_words(fix: Fix) -> str:
    """Empty for a safe fix, which gives the same result at no price."""
    if fix.safe:
        return ""
    effect = "changes" if fix.change is None else fix.change.effect
    return {
        "same": "same result, at a cost",
        "rounding": "same math, different kernels",
        "changes": "changes the training",
    }[effect]
