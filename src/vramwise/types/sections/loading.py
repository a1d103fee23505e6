"""How the weights reach the card, and in which form: read, cast, quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What happens between reading the checkpoint and the first step."""

    # "device": read from the files onto the card; "host": prepared in host memory, then moved; "made": created on the
    # card
    loads_through: Literal["device", "host", "made"]
    shards_by_tensor: bool  # FSDP 2: one whole tensor at a time is on the card while shards are cut, not a whole unit
    warms_up: bool  # transformers asks for the whole model's size before it reads weights onto the card
    # Ahead of a quantised base it asks for half of what the weights would take in 16 bits, and holds each weight twice
    # while it is quantised (transformers 4.50 to 4.57)
    halves_warm_up: bool
    multiplies_first: bool  # matrices are multiplied before weights are read: the library's workspace is there by then
    upcasts_at_load: tuple[str, ...]  # kinds of weights that the trainer casts to fp32 when they are loaded
    copies_to_half: bool  # weights are read in bfloat16 and copied to float16 one by one
    upcasts_stay: bool  # the upcast weights are not cast back
    trains_in_fp32: bool  # trained weights are cast to fp32 after loading, whatever their dtype
    # Which weights of a quantised base PEFT's preparation casts to fp32
    quantised_base_prepared: Literal["no", "all", "but embeddings"]
    resets_load_peaks: bool  # torch's peak figures are reset once the model is loaded
    quantization: Literal["4bit", "8bit", "gptq"] | None
    packed_as_bytes: bool  # 4-bit weights are stored as bytes, which FSDP 2 does not shard
    nested_scales: bool  # the scales of a 4-bit base are themselves quantised to 8 bits
    # 8-bit products separate outlier columns: as many as untrained weights produce. False: none
    int8_outliers: bool
    # of the experts' 3-D weights, which `quantization` does not cover
    expert_quantization: Literal["4bit", "8bit"] | None
    # Frozen embeddings that no head shares go to host memory if less is free than Unsloth sets aside for a step over so
    # many tokens. 0: in any case; None: never
    embedding_leaves_below: int | None


NEUTRAL = Loading(
    loads_through="made",
    shards_by_tensor=False,
    warms_up=True,
    halves_warm_up=False,
    multiplies_first=False,
    upcasts_at_load=(),
    copies_to_half=False,
    upcasts_stay=False,
    trains_in_fp32=False,
    quantised_base_prepared="no",
    resets_load_peaks=False,
    quantization=None,
    packed_as_bytes=False,
    nested_scales=True,
    int8_outliers=False,
    expert_quantization=None,
    embedding_leaves_below=None,
)
NEUTRAL_WHY = "weights stay as they are built"
