"""Heads in place of the vocabulary's: reward models and classifiers; or a value head beside it.

- Outcome rewards use the last token of each row, chosen and rejected in one batch; process rewards use every token.
- A value head gives one value per token in addition to the vocabulary's logits, which are not used. As TRL 0.24's
  `AutoModelForCausalLMWithValueHead` in LLaMA-Factory's stage rm: the batch has labels, so the model also computes the
  loss of its logits; that graph lives until the reward loss is computed. The logits are copied to fp32 on return. The
  model returns the hidden states of all layers, of which the last are used.
- A label for each row, or for each token, follows transformers' `…ForSequenceClassification` and
  `…ForTokenClassification`. Encoders read a row's first token through a dense layer (their pooler, if the model has
  one); decoders score every token and take each row's last.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.ghost.dtypes import BY_NAME, FP32, INT64
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.preference import scored
from vramwise.ghost.loops.reference import adapters_in_bf16
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.steps import Batch
from vramwise.ghost.ops.elementwise import dropout, result_activation, to_float
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.ops.matmul import linear
from vramwise.ghost.ops.shape import indexed, narrow, view
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Parameter, Tape, Tensor
from vramwise.types import ModelSpec, RunSpec


class RewardRun(Run):
    """Pairs, with one score per row."""

    counts_labels = False
    labels = 1

    def __init__(self, t: Tape, run: RunSpec, model: ModelSpec, sharding: Sharding) -> None:
        # no vocabulary head: modelled as one tied to the embeddings
        headless = replace(model, tie_word_embeddings=True, lm_head_bias=False)
        t.without_dropout = True
        super().__init__(t, run, headless, sharding)

    def load_more(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load the head, which is trained with or without an adapter."""
        t, run = self.t, self.run
        if run.loading.quantization is not None and run.adapter.kind is not None and not run.loading.trains_in_fp32:
            adapters_in_bf16(t, self.weights)
        t.mark("weights", "score")
        dtype = (
            FP32 if run.adapter.kind is not None or run.loading.trains_in_fp32 else BY_NAME[run.precision.weights_dtype]
        )
        self.score = Parameter(t, "score.weight", (self.labels, model.hidden_size), dtype, trainable=True)
        t.empty_cache()  # the training loop starts by emptying the cache

    def trained(self) -> list[Parameter]:
        """Return the trained parameters; the head comes last."""
        return [*super().trained(), self.score]

    def batch(self, shape: BatchShape) -> Batch:
        """Return rows without labels."""
        self.t.mark("data", "batch")
        return {key: self.t.new((shape.rows, shape.width), INT64) for key in ("input_ids", "attention_mask")}

    def _model(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        t = self.t
        scores = self._scores(batch, padded)
        pooled = indexed(t, scores, (scores.shape[0], self.labels))
        del scores
        return scored(t, pooled), None

    def _scores(self, batch: Batch, padded: bool) -> Tensor:
        t = self.t
        hidden = self.body(t, batch["input_ids"], batch["attention_mask"], padded)
        if t.training:
            t.phase("loss", self.step)
        t.mark("activations", "scores")
        return linear(t, hidden, self.score)


class ProcessRewardRun(RewardRun):
    """Single rows, with a label at the end of each step of the answer."""

    counts_labels = True
    labels = 2

    def batch(self, shape: BatchShape) -> Batch:
        """Return rows with a label per token."""
        return Run.batch(self, shape)

    def _model(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        t = self.t
        scores = to_float(t, self._scores(batch, padded))
        flat = view(t, scores, (scores.shape[0] * scores.shape[1], self.labels))
        return nll_loss(t, log_softmax(t, flat), batch["labels"]), scores


_DROPOUT = 0.1


class ValueHeadRun(Run):
    """Pairs, chosen rows first; the score of a row is the value at its last token."""

    counts_labels = False

    def load_more(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load the head, in fp32."""
        t = self.t
        t.mark("weights", "v_head")
        self.value = Parameter(t, "v_head.summary.weight", (1, model.hidden_size), FP32, trainable=True)
        self.bias = Parameter(t, "v_head.summary.bias", (1,), FP32, trainable=True)

    def trained(self) -> list[Parameter]:
        """Return the trained parameters; the head comes last."""
        return [*super().trained(), self.value, self.bias]

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


_LABELS = 2  # the library's default


class ClassesRun(Run):
    """A label for each row."""

    counts_labels = False  # what counts them takes a few bytes
    each_token = False

    def __init__(self, t: Tape, run: RunSpec, model: ModelSpec, sharding: Sharding) -> None:
        self.encoder = model.reads == "encoder"
        self.labels = run.objective.class_labels or _LABELS
        self.rate = model.hidden_dropout if self.encoder else 0.0
        sizes = tuple([(name, 0 if name == "pooler" and self.each_token else size) for name, size in model.sizes])
        # no vocabulary head: modelled as one tied to the embeddings
        super().__init__(t, run, replace(model, tie_word_embeddings=True, lm_head_bias=False, sizes=sizes), sharding)

    def load_more(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load the head, which is trained with or without an adapter."""
        super().load_more(model, sharding)
        t, hidden = self.t, model.hidden_size
        dtype = FP32 if self.run.loading.trains_in_fp32 else BY_NAME[self.run.precision.weights_dtype]
        t.mark("weights", "score")

        def made(name: str, *shape: int) -> Parameter:
            return Parameter(t, name, shape, dtype, trainable=True)

        self.dense: list[Parameter] = []
        self.pooler: list[Parameter] = []
        if self.encoder and not self.each_token:
            name = next((one for one in ("pooler.dense", "pooler") if self.weights.rows(f"{one}.weight")), None)
            if name is None:
                self.dense = [made("classifier.dense.weight", hidden, hidden), made("classifier.dense.bias", hidden)]
            else:
                self.pooler = [self.weights.by_name[f"{name}.{end}"] for end in ("weight", "bias")]
        self.score = [made("score.weight", self.labels, hidden)]
        if self.encoder:
            self.score.append(made("score.bias", self.labels))

    def trained(self) -> list[Parameter]:
        """Return the trained parameters; the head comes last."""
        return [*super().trained(), *self.dense, *self.score]

    def batch(self, shape: BatchShape) -> Batch:
        """Return rows with a label each, or with one for each token."""
        self.t.mark("data", "batch")
        made: Batch = {key: self.t.new((shape.rows, shape.width), INT64) for key in ("input_ids", "attention_mask")}
        made["labels"] = self.t.new((shape.rows, shape.width) if self.each_token else (shape.rows,), INT64)
        return made

    def _model(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        t = self.t
        hidden = self.body(t, batch["input_ids"], batch["attention_mask"], padded)
        if t.training:
            t.phase("loss", self.step)
        t.mark("logits", "classes")
        logits = self._logits(t, hidden)
        del hidden
        flat = to_float(t, view(t, logits, (logits.numel // self.labels, self.labels)))
        return nll_loss(t, log_softmax(t, flat), batch["labels"]), logits

    def _logits(self, t: Tape, hidden: Tensor) -> Tensor:
        rows, _, width = hidden.shape
        if not self.encoder:
            return indexed(t, linear(t, hidden, *self.score), (rows, self.labels))
        first = narrow(t, hidden, (rows, width))
        weight, bias = self.pooler or self.dense
        first = result_activation(t, linear(t, first, weight, bias))
        return linear(t, dropout(t, first, self.rate), *self.score)


class TokenClassesRun(ClassesRun):
    """A label for each token."""

    each_token = True

    def _logits(self, t: Tape, hidden: Tensor) -> Tensor:
        return linear(t, dropout(t, hidden, self.rate), *self.score)
