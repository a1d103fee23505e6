"""Resolves checkpointing: "unsloth" offloads layer inputs to host memory, True keeps them on the card."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.unsloth.keys import since
from vramwise.types import Target

KEY = "use_gradient_checkpointing"


def resolve_checkpointing(args: Arguments, target: Target) -> None:
    """Fill gradient_checkpointing, recompute, its form and offloading. Needs sharding."""
    way = args.value(KEY)
    on = way in (True, "unsloth", "true", "True")
    asked = args.written("gradient_checkpointing") and args.value("gradient_checkpointing") is True
    key = KEY
    if not on and asked and way is False:
        on, key = True, "gradient_checkpointing"
    if key == KEY:
        args.put("gradient_checkpointing", KEY, on)
    else:
        why = f"gradient_checkpointing in the config turns on what {KEY} left off"
        args.derive("gradient_checkpointing", True, why, key=key)
    if "recompute" not in args.values:
        args.derive("recompute", on, "checkpointing is on" if on else f"{KEY} is off", key=key)
        args.derive("checkpointing_reentrant", True, "Unsloth's checkpointing is reentrant", key=key)
    staged = on and way == "unsloth"
    why = f'{KEY} is "unsloth": inputs of layers wait in host memory' if staged else "nothing is offloaded"
    form = "staged" if since(target.stack, 2024, 11) else "hidden_states"
    args.derive("activation_offloading", form if staged else "off", why, key=KEY)
