"""Settings that the installed versions decide, independent of the trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.facts.attention import flash_needs_sinks
from vramwise.trainers.deepspeed import Filled
from vramwise.trainers.fields import Fields
from vramwise.types import ChunksInPlace, ExpertMasks, Origin, Stack, Unfollowed

# The version of liger-kernel that trainers require.
_LIGER = (0, 8, 1)
_MIXERS = {"state space": "mamba-ssm", "delta rule": "fla-core"}

# The releases of transformers that move each quantised weight on to host memory; since 5.0 they stay on the card.
_MOVES_ON = ((4, 39), (5,))
# Since these releases, the plain loss shifts the labels instead of the logits, and casts these itself.
_SHIFTS_LABELS, _WIDENS_IN_LOSS = (4, 49), (4, 46)
_FLOATS = ("bf", "float", "half")
_KEPT = "the whole quantised base is on each card until it is sharded"


def resolve_quantised_way(args: Filled, stack: Stack, *, announced: bool = True) -> None:
    """Fill loads_through for a base that bitsandbytes quantises. Needs sharding and shards_by_tensor.

    Read in `_load_state_dict_into_meta_model` of transformers 4.40 to 4.57, and in `core_model_loading` of 5.0 to 5.23.
    `announced`: sharding is known when the model is loaded.
    """
    kind, release = str(args.values["sharding"]), stack.releases.get("transformers")
    spread = kind == "zero3" or (kind.startswith("fsdp") and args.values["shards_by_tensor"])
    if not (spread and announced):
        why = "bitsandbytes quantises on the card: weights are read straight onto it"
        args.derive("loads_through", "device", why)
    elif _MOVES_ON[0] <= stack.parts("transformers") < _MOVES_ON[1]:
        why = "transformers 4 moves each weight to host memory once it is quantised on the card"
        args.derive("loads_through", "host", why)
    elif release is None or release.origin.kind == "assumed":
        args.assume("loads_through", "device", f"transformers 5: {_KEPT}; transformers 4 moves each weight to the host")
    else:
        args.derive("loads_through", "device", f"transformers {release.version}: {_KEPT}")


def resolve_storage(args: Filled, storage: object) -> None:
    """Fill packed_as_bytes from `bnb_4bit_quant_storage`: uint8 unless it names a floating-point type."""
    key = "bnb_4bit_quant_storage"
    as_bytes = args.values["quantization"] == "4bit" and not str(storage).rpartition(".")[2].startswith(_FLOATS)
    why = f"{key} is {'not a floating-point type' if as_bytes else storage}"
    args.derive("packed_as_bytes", as_bytes, why, key=key)


def resolve_installed(fields: Fields, stack: Stack) -> None:
    """Fill what versions alone decide: kernels of losses, experts, rotation and mixers, samples_told and flash_*."""
    if fields.values["quantization"] in ("4bit", "8bit") and () < stack.parts("transformers") < (5,):
        why = "transformers 4 has experts as linear layers, which bitsandbytes quantises like others"
        fields.derive("expert_quantization", fields.values["quantization"], why)
    for name, value, why in _decided(stack):
        fields.derive(name, value, why)
    transformers = stack.releases.get("transformers")
    needs = transformers is not None and flash_needs_sinks(transformers.parts)
    assumed = transformers is None or transformers.origin.kind == "assumed"
    why = f"transformers {transformers.version}" if transformers else "the version of transformers is unknown"
    fields.put("flash_needs_sinks", needs, Origin(kind="assumed" if assumed else "derived", why=why))


def unfollowed_experts(values: Mapping[str, Any], stack: Stack) -> Iterator[Unfollowed]:
    """Yield what no prediction includes of experts that are linear layers, as before transformers 5: their adapters."""
    if values["adapter"] is not None and () < stack.parts("transformers") < (5,):
        why = "adapters of each expert's own layers, which transformers before 5 has, are not counted"
        yield Unfollowed(name="adapters on experts", less=False, why=why, experts_only=True)


def default_attention(stack: Stack) -> tuple[str, str]:
    """Return the attention that transformers picks by itself, and why: models have sdpa since 4.36."""
    if () < stack.parts("transformers") < (4, 36):
        return "eager", "unset: transformers before 4.36 has no other"
    return "sdpa", "unset: transformers picks sdpa"


def _decided(stack: Stack) -> Iterator[tuple[str, object, str]]:
    transformers = stack.parts("transformers")
    yield from _old_losses(transformers)
    yield "expert_masks", *_expert_masks(transformers)
    by_product = (0,) < transformers < (5, 19)
    why = "transformers up to 5.18 multiplies matrices for them" if by_product else "transformers since 5.19 does not"
    yield "rotary_by_product", by_product, why
    told = transformers >= (5, 20)
    yield "samples_told", told, f"transformers {'since' if told else 'before'} 5.20"
    liger = stack.parts("liger-kernel") or _LIGER
    yield "liger_chunks_in_place", _in_place(liger), f"liger-kernel {'.'.join([str(part) for part in liger])}"
    mixers = tuple([mixer for mixer, package in _MIXERS.items() if stack.parts(package)])
    packages = ", ".join([_MIXERS[mixer] for mixer in mixers])
    yield (
        "mixer_kernels",
        mixers,
        f"installed: {packages}" if mixers else "no package with them is known to be installed",
    )
    flash = "flash-attn" in stack.releases
    yield (
        "flash_installed",
        flash,
        "flash-attn is installed" if flash else "flash-attn is not known to be installed",
    )


def _old_losses(transformers: tuple[int, ...]) -> Iterator[tuple[str, object, str]]:
    """Yield how older releases make the logits that their own loss takes.

    Read in modeling_llama.py of 4.31.0 to 4.45.2 (`logits.float()`, `shift_logits = logits[..., :-1, :].contiguous()`)
    and loss/loss_utils.py of 4.46.3 to 5.5.4, which shifts the labels since 4.49.0.
    """
    if () < transformers < _SHIFTS_LABELS:
        yield "shifts_logits", True, "transformers before 4.49 copies the logits that have a label"
    if () < transformers < _WIDENS_IN_LOSS:
        yield "head_in_fp32", True, "transformers before 4.46 casts all logits to fp32 in the model"


def _expert_masks(transformers: tuple[int, ...]) -> tuple[ExpertMasks, str]:
    """Return when rows without an expert are zeroed, and why.

    Read in transformers 5.16.1, 5.17.0, 5.20.1 and 5.22.2.
    """
    if not transformers:
        return "products", "as in transformers 5.17"
    if transformers < (5, 17):
        return "ends", "transformers before 5.17: in place, at both ends"
    if transformers < (5, 20):
        return "products", "transformers 5.17 to 5.19: after each product"
    return "none", "transformers since 5.20: only under expert parallelism"


def _in_place(liger: tuple[int, ...]) -> ChunksInPlace:
    """Return when Liger's loss works in place.

    Observed in 0.8.4 if no operand needs a cast, in 0.8.5 always, and not in 0.8.1.
    """
    if liger < (0, 8, 4):
        return "never"
    return "uncast" if liger < (0, 8, 5) else "always"
