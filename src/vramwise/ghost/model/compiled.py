"""Layers as `torch.compile` runs them: elementwise ops between products are one kernel and save what they were given.

What a compiled module saves was read from the partitioned graphs of torch 2.13 (norms, feed-forward layers with and
without LoRA, in 16, 8 and 4 bits): a norm its input and a number a row, a gated layer the gate, the other half and
their product, and nothing in fp32.
"""

from __future__ import annotations

from vramwise.ghost.model.linear import LORA_CALLS, LoraLinear
from vramwise.ghost.model.mlp import GatedMlp
from vramwise.ghost.ops.elementwise import cast, dropout
from vramwise.ghost.ops.liger import gated_activation, rms_norm
from vramwise.ghost.ops.matmul import add_product, linear
from vramwise.ghost.tape import Parameter, Tape, Tensor


class CompiledNorm:
    """RMS norm in one kernel; its gradient is a tensor of its own."""

    __slots__ = ("weight",)

    def __init__(self, weight: Parameter) -> None:
        self.weight = weight

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return rms_norm(t, x, self.weight, in_place=False)


class CompiledGatedMlp(GatedMlp):
    """down(act(gate(x)) * up(x)), the middle in one kernel; what it saved is given away, and becomes the gradients."""

    __slots__ = ()

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.down(t, gated_activation(t, self.gate(t, x), self.up(t, x)))


class AddedLoraLinear(LoraLinear):
    """LoRA whose second product is added onto the base layer's result by the product itself (`addmm`).

    After `lora_forward` of unsloth_zoo's compiler.py (2026.10.9): the branch runs in the result's type, nothing is
    cloned or scaled by itself. It casts the weights itself, so that copies last as long as the graph, where autocast
    would keep them until the pass ends.
    """

    __slots__ = ()

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if t.work is not None:
            t.work.called(LORA_CALLS)
        result = self.base(t, x)
        x = cast(t, x, result.dtype)
        low = linear(t, dropout(t, x, self.rate), cast(t, self.down, x.dtype))
        return add_product(t, result, low, self.up)
