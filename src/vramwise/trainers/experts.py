"""What of mixtures of experts depends on the version of transformers, whichever trainer runs it."""

from __future__ import annotations

from vramwise.types import ExpertMasks, Stack


def expert_masks(stack: Stack) -> tuple[ExpertMasks, str]:
    """Where rows without an expert are zeroed, and why. Read in transformers 5.16.1, 5.17.0, 5.20.1 and 5.22.2."""
    version = stack.parts("transformers")
    if not version:
        return "products", "as in transformers 5.17"
    if version < (5, 17):
        return "ends", "transformers before 5.17: in place, at both ends"
    if version < (5, 20):
        return "products", "transformers 5.17 to 5.19: after each product"
    return "none", "transformers since 5.20: only under expert parallelism"
