"""Reward models with a value head: one value per token in addition to the vocabulary's logits, which are not used.

As TRL 0.24's `AutoModelForCausalLMWithValueHead` in LLaMA-Factory's stage rm: the batch has labels, so the model also
computes the loss of its logits; that graph lives until the reward loss is computed. The logits are copied to fp32 on
return. The model returns the hidden states of all layers, of which the last are used.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.loops.preference import scored
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.state import Batch
from vramwise.ghost.ops.elementwise import dropout, to_float
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.shape import indexed
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Parameter, Tensor
from vramwise.types import ModelSpec

_DROPOUT = 0.1


class ValueHeadRun(Run):
    """Pairs, chosen rows first; the score of a row is the value at its last token."""

    def load_more(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load the head, in fp32."""
        t = self.t
        t.mark("weights", "v_head")
        self.value = Parameter(t, "v_head.summary.weight", (1, model.hidden_size), FP32, trainable=True)
        self.bias = Parameter(t, "v_head.summary.bias", (1,), FP32, trainable=True)

    def trained(self) -> list[Parameter]:
        """Return the trained parameters; the head comes last."""
        return [*super().trained(), self.value, self.bias]

    def count(self, batches: list[Batch]) -> Tensor | None:
        """Return None: labels are not counted."""
        return None

    def _model(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        t = self.t
        handed_out: list[Tensor] = []
        t.hidden_states = handed_out
        hidden = self.body(t, batch["input_ids"], batch["attention_mask"], padded)
        t.hidden_states = None
        if t.training:
            t.phase("loss", self.step)
        unused, logits = self.loss(t, hidden, self.head, batch["labels"])
        t.mark("activations", "values")
        dropped = dropout(t, hidden, _DROPOUT if t.training else 0.0)
        wide = to_float(t, dropped)
        del dropped
        values = linear(t, wide, self.value, self.bias)
        del wide
        if logits is not None:
            t.mark("logits", "logits in fp32")
            logits = to_float(t, logits)
        del logits, hidden, handed_out  # the model's outputs are freed after the wrapper has converted them
        loss = scored(t, indexed(t, values, (values.shape[0], 1)))
        del values, unused
        return loss, None
