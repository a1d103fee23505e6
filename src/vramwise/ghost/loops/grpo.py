"""GRPO: completions are generated, scored by the reference, and trained on.

Only the logits of completions are computed. Completions are assumed to reach their limit, and prompts to fill the rest
of the row. An inference engine on the same card (vLLM) counts with its share of the card.

The policy generates by itself otherwise: a pass over the prompts, which creates the key-value cache, then token by
token. Each token appends its keys and values to the cache: a new tensor per layer replaces the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.ghost.dtypes import BY_NAME, FP32, INT64, DType
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.preference import PreferenceRun, scored, shifted
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.loops.steps import Batch, Step
from vramwise.ghost.model.causal_lm import Block
from vramwise.ghost.ops.logprobs import divide_slice_in_place
from vramwise.ghost.ops.shape import sliced
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Storage, Tape, Tensor
from vramwise.types import ModelSpec, RunSpec


class GrpoRun(PreferenceRun):
    """A step: generation, reference, then the update, one micro-batch at a time."""

    keys = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    disables_dropout = False

    def __init__(self, t: Tape, run: RunSpec, model: ModelSpec, sharding: Sharding) -> None:
        self.model = model
        self.generator: Storage | None = None
        super().__init__(t, run, model, sharding)
        self._wake()

    def samples(self, step: Step) -> tuple[list[Batch], Tensor | None]:
        """Generate all rows of the step at once and score them one micro-batch at a time; return the batches."""
        shape = max(step.held, key=lambda held: held.width)
        t, run = self.t, self.run
        t.grad_enabled = False
        rows = run.objective.generation_rows or shape.rows
        if run.objective.engine == "policy":
            self._generate(shape, rows)
        self._wake()
        if self.generator is not None and run.objective.engine_sleeps:
            self.generator = None
            t.empty_cache()
        batch = self._rows(BatchShape(rows, shape.width, shape.padded))
        if run.objective.old_log_probs or run.objective.reference != "none":
            t.phase("reference", self.step)
        if run.objective.old_log_probs:
            self._score(self.policy, batch, shape, rows)
        if run.objective.reference != "none":
            self._score(self.reference, batch, shape, rows)
        del batch
        t.grad_enabled = True
        return super().samples(step)

    def predict(self, batch: Batch, shape: BatchShape) -> Tensor:
        """Evaluate a batch; its completions are generated, too."""
        if self.run.objective.engine == "policy":
            self._generate(shape, shape.rows)
        self.t.phase("eval", self.step)
        if self.run.objective.reference != "none":
            self._score(self.reference, self._rows(shape), shape, shape.rows)
        return super().predict(batch, shape)

    def batch(self, shape: BatchShape) -> Batch:
        """Return a batch with separate prompts and completions."""
        self.t.mark("data", "batch")
        completion = min(self.run.objective.completion_len or 1, shape.width - 1) or 1
        widths = (shape.width - completion, shape.width - completion, completion, completion)
        return {key: self.t.new((shape.rows, width), INT64) for key, width in zip(self.keys, widths, strict=True)}

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss of the update."""
        rows, completion = batch["completion_ids"].shape
        joined = self._rows(BatchShape(rows, batch["prompt_ids"].shape[1] + completion, padded))
        if self.without_logits:
            return scored(self.t, self.chunked(self.policy, joined, padded)), None
        logits = self.logits(self.policy, joined, padded, completion + 1)
        loss = scored(self.t, self._log_probs_of(logits))
        del logits
        return loss, None

    def _log_probs_of(self, logits: Tensor) -> Tensor:
        """Return log-probabilities at the sampling temperature: by an in-place division, or within the kernel."""
        t = self.t
        rows, tokens, words = logits.shape
        if self.run.objective.log_probs == "copied":
            return self.log_probs(divide_slice_in_place(t, logits, (rows, tokens - 1, words)))
        following = shifted(t, logits)
        return self.log_probs(sliced(t, following, following.shape))

    def _rows(self, shape: BatchShape) -> Batch:
        """Return a batch with prompts and completions joined."""
        self.t.mark("data", "batch")
        return {key: self.t.new((shape.rows, shape.width), INT64) for key in ("input_ids", "attention_mask")}

    def _generate(self, shape: BatchShape, rows: int) -> None:
        t, model = self.t, self.model
        t.phase("generate", self.step)
        completion = min(self.run.objective.completion_len or 1, shape.width - 1) or 1
        prompt = max(1, shape.width - completion)
        batch = self._rows(BatchShape(rows, prompt, shape.padded))
        cache = _Cache(rows, model, self.amp or BY_NAME[self.run.precision.weights_dtype], [])
        t.autocast = self.amp
        _prefill(t, self.policy, cache, batch["input_ids"], batch["attention_mask"], shape.padded)
        t.autocast = None
        t.casts.clear()
        _decode(t, cache, prompt, completion)
        cache.layers.clear()

    def _score(self, model: Model, batch: Batch, shape: BatchShape, rows: int) -> None:
        """Compute log-probabilities without a graph; a chunk's logits stay until the next chunk's are computed."""
        completion = min(self.run.objective.completion_len or 1, shape.width - 1) or 1
        logits: Tensor | None = None
        for _ in range(min(2, -(-rows // shape.rows))):
            part = self._rows(shape)
            if self.without_logits:
                scored(self.t, self.chunked(model, part, shape.padded))
                continue
            logits = self.logits(model, part, shape.padded, completion + 1)
            scored(self.t, self._log_probs_of(logits))
        del logits

    def _wake(self) -> None:
        """Allocate the engine's share of the card; it keeps that unless it sleeps."""
        run, gpu = self.run, self.run.target.gpu
        if run.objective.engine == "beside" and gpu is not None and self.generator is None:
            self.t.mark("engine", "inference engine")
            self.generator = Storage(self.t, int(run.objective.engine_share * gpu.memory_bytes))


# How many lengths of the growing cache are simulated: one per token for short completions.
_MOST_LENGTHS = 64
# Vocabulary-sized tensors that sampling holds at once: scores, processed scores, probabilities.
_SAMPLING_COPIES = 3


@dataclass(slots=True)
class _Cache:
    """Keys and values of each layer."""

    rows: int
    model: ModelSpec
    dtype: DType
    layers: list[tuple[Tensor, Tensor]]

    def tensor(self, t: Tape, tokens: int) -> Tensor:
        """Allocate the keys, or values, of one layer."""
        t.mark("activations", "keys and values of what is generated")
        return t.new((self.rows, self.model.num_key_value_heads, tokens, self.model.head_dim), self.dtype)

    def grow(self, t: Tape, tokens: int) -> None:
        """Replace the keys and values of all layers with ones of this length."""
        for number in range(len(self.layers)):
            keys = self.tensor(t, tokens)
            values = self.tensor(t, tokens)
            self.layers[number] = keys, values
            del keys, values


@dataclass(frozen=True, slots=True)
class _Caching:
    """A block that stores its keys and values in the cache."""

    block: Block
    cache: _Cache
    tokens: int

    def __call__(self, t: Tape, hidden: Tensor, **arguments: object) -> Tensor:
        """Run the block and append its keys and values."""
        out = self.block(t, hidden, **arguments)
        self.cache.layers.append((self.cache.tensor(t, self.tokens), self.cache.tensor(t, self.tokens)))
        return out


def _prefill(t: Tape, model: Model, cache: _Cache, ids: Tensor, mask: Tensor, padded: bool) -> None:
    """Run the pass over the prompts."""
    body = model.body
    plain = list(body.blocks)
    body.blocks[:] = [_Caching(block, cache, ids.shape[1]) for block in plain]
    body(t, ids, mask, padded)
    body.blocks[:] = plain


def _decode(t: Tape, cache: _Cache, prompt: int, completion: int) -> None:
    """Generate token by token; for long completions, only some lengths are simulated."""
    step = max(1, -(-completion // _MOST_LENGTHS))
    for length in [*range(1, completion, step), completion]:
        cache.grow(t, prompt + length)
        t.mark("logits", "sampling")
        held = [t.new((cache.rows, cache.model.vocab_size), FP32) for _ in range(_SAMPLING_COPIES)]
        del held
