"""What a request was for, from its size: tokens × vocabulary × 2 or 4 bytes is logits, batch × heads × length² scores.

Needs dimensions from the config's model or from the log. Sizes in a log are rounded, so a product matches if it is
within the message's rounding; another product may match by chance, so a match is evidence, not proof. Formulas: the
stock path of transformers' causal language models (logits in the compute dtype, then fp32).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from vramwise.models.catalogue import every_shape
from vramwise.units import MIB

_WIDTHS = ((2, "2 bytes"), (4, "4 bytes"))
# torch reports these sizes for any request up to 1 and below 10 MiB: they say nothing.
_TELLS_NOTHING = (2 * MIB, 20 * MIB)
# Smaller requests have the size of some vocabulary's logits by chance.
_LEAST_LOGITS = 512 * MIB
# Usual sequence lengths, for logs that name none.
_USUAL_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


class Batch(NamedTuple):
    """The rows of a batch and the tokens per row."""

    name: str  # "train" or "eval"
    rows: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What is known of the model and the batches; 0 or empty if unknown."""

    vocab_size: int = 0
    heads: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    parameter_sizes: tuple[tuple[str, int], ...] = ()  # name and number of elements, distinct shapes only
    trainable: int = 0
    batches: tuple[Batch, ...] = ()


class Factors(NamedTuple):
    """A product that equals the request. `kind`: logits, scores, parameter, activation. `exact`: with known lengths."""

    kind: str
    batch: str
    arithmetic: str
    exact: bool


def factor(requested_bytes: int, tolerance_bytes: int, known: Dimensions) -> list[Factors]:
    """Return the products that equal the request, most specific first."""
    if requested_bytes in _TELLS_NOTHING or requested_bytes < 8 * MIB:
        return []
    low, high = requested_bytes - tolerance_bytes, requested_bytes + tolerance_bytes
    found = [factors for factors, size in _products(known) if low <= size <= high]
    if not any(factors.kind == "logits" for factors in found):
        found += _logits_of_some_length(requested_bytes, low, high, known)
    order = ("logits", "scores", "parameter", "activation")
    return sorted(found, key=lambda factors: (not factors.exact, order.index(factors.kind)))


def other_vocabulary(requested_bytes: int, tolerance_bytes: int, known: Dimensions) -> Factors | None:
    """Return the logits of the known batches with the vocabulary of another known model, if the request has their size.

    None if the request fits the known vocabulary, or nothing.
    """
    if not known.vocab_size or requested_bytes < _LEAST_LOGITS:
        return None
    low, high = requested_bytes - tolerance_bytes, requested_bytes + tolerance_bytes
    if any(low <= size <= high for _, size in _products(known)):
        return None
    others = {shape["config"].get("vocab_size", 0) for shape in every_shape()} - {known.vocab_size, 0}
    for size in sorted(others):
        one = Dimensions(vocab_size=size, batches=known.batches)
        for factors, product in _products(one):
            if factors.kind == "logits" and low <= product <= high:
                return factors
    return None


def _products(known: Dimensions) -> Iterator[tuple[Factors, int]]:
    for batch in known.batches:
        tokens = batch.rows * batch.length
        for width, words in _WIDTHS:
            shape = f"{batch.rows} × {batch.length}"
            if known.vocab_size:
                text = f"{shape} tokens × {known.vocab_size} vocabulary × {words}"
                yield Factors("logits", batch.name, text, True), tokens * known.vocab_size * width
                # The loss covers all positions except the last.
                shifted = batch.rows * (batch.length - 1)
                text = f"{batch.rows} × {batch.length - 1} tokens × {known.vocab_size} vocabulary × {words}"
                yield Factors("logits", batch.name, text, True), shifted * known.vocab_size * width
            if known.heads:
                text = f"{batch.rows} × {known.heads} heads × {batch.length}² × {words}"
                yield Factors("scores", batch.name, text, True), tokens * batch.length * known.heads * width
            for size, what in ((known.intermediate_size, "MLP width"), (known.hidden_size, "hidden size")):
                if size:
                    yield (
                        Factors("activation", batch.name, f"{shape} × {size} {what} × {words}", True),
                        tokens * size * width,
                    )
    yield from _parameter_products(known)


def _parameter_products(known: Dimensions) -> Iterator[tuple[Factors, int]]:
    sizes = list(known.parameter_sizes)
    if known.trainable:
        sizes.append(("all trainable parameters", known.trainable))
    for name, count in sizes:
        for width, words in ((1, "1 byte"), *_WIDTHS):
            yield Factors("parameter", "", f"{name}: {count:,} × {words}", True), count * width


def _logits_of_some_length(requested: int, low: int, high: int, known: Dimensions) -> Iterator[Factors]:
    """Yield logits of an unknown length.

    If batches are known: a number of tokens between a quarter of the longest batch and all of it. Otherwise: rows of a
    usual length.
    """
    longest = max((batch.rows * batch.length for batch in known.batches), default=0)
    if not known.vocab_size:
        return
    for width, words in reversed(_WIDTHS):
        tokens = requested / (known.vocab_size * width)
        if longest and longest / 4 <= tokens <= longest:
            near = f"about {tokens:,.0f} of at most {longest} tokens × {known.vocab_size} vocabulary × {words}"
            yield Factors("logits", "train", near, False)
            return
        for length in () if longest else _USUAL_LENGTHS:
            rows = round(tokens / length)
            if 1 <= rows <= 64 and low <= rows * length * known.vocab_size * width <= high:
                text = f"{rows} × {length} tokens × {known.vocab_size} vocabulary × {words}"
                yield Factors("logits", "train", text, False)
                return
