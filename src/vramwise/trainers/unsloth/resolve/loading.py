"""How the weights come to the card: read onto it, in the width that is asked for."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.unsloth.resolve.adapter import bits_of
from vramwise.types import Target


def resolve_loading(args: Arguments, target: Target) -> None:
    """Fills quantization and what belongs to it. Needs the method."""
    bits = bits_of(args)
    key = f"load_in_{bits}" if bits else "load_in_16bit" if args.value("load_in_16bit") else "load_in_4bit"
    args.derive("quantization", bits, f"{key} is on" if bits else "the base is not quantised", key=key)
    args.derive("nested_scales", True, "Unsloth quantises the scales too")
    args.derive("int8_outliers", bits == "8bit", "LLM.int8 sets values of 6 and more apart")
    args.derive("quantised_base_prepared", "no", "Unsloth casts adapters alone")
    args.derive("multiplies_first", True, "measured: the workspace is there before the first weight")
    args.derive("loads_through", "device", "read straight onto the card")
    full = args.values["adapter"] is None
    narrow = full and args.values["weights_dtype"] != "fp32"
    args.derive("upcasts_at_load", ("norm",) if narrow else (), "norms that are trained are kept in fp32")
    args.derive("upcasts_stay", True, "nothing is cast back")
