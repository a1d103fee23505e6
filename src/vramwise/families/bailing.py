"""Ling and Ring: values derived from several fields of their config."""

from __future__ import annotations

from vramwise.families.base import Found
from vramwise.families.config_fields import Fields


def settles(fields: Fields, found: Found) -> Found:
    """Set the width of the shared experts, which form one MLP. Each is as wide as an expert unless the file sets it."""
    if not found.get("num_experts"):
        return {}
    width = fields.optional_integer("moe_shared_expert_intermediate_size") or found["moe_intermediate_size"]
    return {"shared_expert_intermediate_size": fields.count("num_shared_experts") * width}
