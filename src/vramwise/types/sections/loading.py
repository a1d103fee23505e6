"""How the weights reach the card, and in which form: read, cast, quantised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What happens between reading the checkpoint and the first step."""

    neutral_why: ClassVar[str] = "weights stay as they are built"

    # "device": read from the files onto the card; "host": prepared in host memory, then moved; "made": created on the
    # card
    loads_through: Literal["device", "host", "made"] = field(metadata=setting("made", compared=False))
    # FSDP 2: one whole tensor at a time is on the card while shards are cut, not a whole unit
    shards_by_tensor: bool = field(metadata=setting(False, compared=False))
    # transformers asks for the whole model's size before it reads weights onto the card
    warms_up: bool = field(metadata=setting(True, compared=False, rare=True, plain="transformers' own way of loading"))
    # Ahead of a quantised base it asks for half of what the weights would take in 16 bits, and holds each weight twice
    # while it is quantised (transformers 4.50 to 4.57)
    halves_warm_up: bool = field(metadata=setting(False, compared=False, rare=True, plain="as transformers since 5.0"))
    # matrices are multiplied before weights are read: the library's workspace is there by then
    multiplies_first: bool = field(metadata=setting(False, compared=False, rare=True, plain="nothing is multiplied"))
    # kinds of weights, or names of single ones, that are cast to fp32 when they are loaded
    upcasts_at_load: tuple[str, ...] = field(
        metadata=setting((), compared=False, rare=True, plain="the plain Trainer casts nothing")
    )
    # weights are read in bfloat16 and copied to float16 one by one
    copies_to_half: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="weights are read in their type")
    )
    upcasts_stay: bool = field(metadata=setting(False, rare=True))  # the upcast weights are not cast back
    # trained weights are cast to fp32 after loading, whatever their dtype
    trains_in_fp32: bool = field(metadata=setting(False, rare=True))
    # Which weights of a quantised base PEFT's preparation casts to fp32
    quantised_base_prepared: Literal["no", "all", "but embeddings"] = field(
        metadata=setting("no", compared=False, plain="adapters go around the base as it is")
    )
    # torch's peak figures are reset once the model is loaded
    resets_load_peaks: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the peak figures begin with the process")
    )
    quantization: Literal["4bit", "8bit", "gptq"] | None = field(metadata=setting(None, compared=False))
    # 4-bit weights are stored as bytes, which FSDP 2 does not shard
    packed_as_bytes: bool = field(metadata=setting(False, compared=False, rare=True))
    # the scales of a 4-bit base are themselves quantised to 8 bits
    nested_scales: bool = field(metadata=setting(True, compared=False))
    # 8-bit products separate outlier columns: as many as untrained weights produce. False: none
    int8_outliers: bool = field(metadata=setting(False, compared=False))
    # of the experts' 3-D weights, which `quantization` does not cover
    expert_quantization: Literal["4bit", "8bit"] | None = field(
        metadata=setting(None, phrase="quantised experts", rare=True)
    )
    # Frozen embeddings that no head shares go to host memory if less is free than Unsloth sets aside for a step over so
    # many tokens. 0: in any case; None: never
    embedding_leaves_below: int | None = field(
        metadata=setting(None, compared=False, rare=True, plain="embeddings stay on the card")
    )
