"""Which layers of a model run their LoRA in fused kernels: those that the run names, where every projection of a kernel
has an adapter. The others stay as they are, as the trainers leave them."""

from __future__ import annotations

from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.model.fused_lora import FusedLoraLinear, FusedLoraMlp, FusedLoraQkv
from vramwise.ghost.ops.fused_lora import Fused
from vramwise.ghost.weights import Weights

_MLP = ("gate_proj", "up_proj", "down_proj")


class FusedKernels:
    """Gives a layer's kernel, or None where it has none."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.run = weights.run
        self.attention = weights.block.attention

    def qkv(self, start: str) -> FusedLoraQkv | None:
        """Query, key and value, unless a norm over all heads stands between the projections and the heads."""
        if self.weights.model.qk_norm == "full":
            return None
        parts = self._parts("qkv", start, self.attention[:3])
        return None if parts is None else FusedLoraQkv((parts[0], parts[1], parts[2]), self.run.adapter.lora_dropout)

    def out(self, start: str) -> FusedLoraLinear | None:
        """The output projection of attention."""
        parts = self._parts("o", start, self.attention[3:])
        return None if parts is None else FusedLoraLinear(parts[0], self.run.adapter.lora_dropout)

    def mlp(self, place: str) -> FusedLoraMlp | None:
        """A gated feed-forward layer."""
        parts = self._parts("mlp", place, _MLP)
        return None if parts is None else FusedLoraMlp((parts[0], parts[1], parts[2]), self.run.adapter.lora_dropout)

    def _parts(self, kernel: str, start: str, names: tuple[str, ...]) -> list[Fused] | None:
        places = [f"{start}{name}" for name in names]
        readable = self.run.loading.quantization in (None, "4bit")
        if (
            kernel not in self.run.adapter.fused_lora
            or not readable
            or not all(p in self.weights.adapters for p in places)
        ):
            return None
        return [self._part(place) for place in places]

    def _part(self, place: str) -> Fused:
        weights = self.weights
        packed = weights.shapes.get(f"{place}.weight")
        weight = None if packed else weights.by_name[f"{place}.weight"]
        shape = weight.shape if weight is not None else packed
        assert shape is not None
        down, up = weights.adapters[place]
        return Fused(
            shape=(shape[0], shape[1]),
            weight=weight,
            compute=BY_NAME[self.run.precision.weights_dtype],
            down=down,
            up=up,
            magnitude=weights.magnitudes.get(place),
            biased=weights.get(f"{place}.bias") is not None,
            wide_grads=self.run.adapter.fused_lora_wide_grads,
        )
