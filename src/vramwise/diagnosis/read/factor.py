"""What a request was for, from its size: tokens × vocabulary × 2 or 4 bytes is logits, batch × heads × length² scores.

Needs dimensions, from the config's model or from the log. A size in a log is rounded, so a product matches where it
lies within the message's rounding; a product of other tensors may match by chance, which is why a match is evidence and
no proof. Formulas: the stock path of transformers' causal language models (logits in the compute dtype, then fp32).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from vramwise.units import MIB

_WIDTHS = ((2, "2 bytes"), (4, "4 bytes"))
# Requests of these sizes stand for anything up to 1 and up to 10 MiB: they say nothing.
_TELLS_NOTHING = (2 * MIB, 20 * MIB)
# Lengths that trainers are usually set to: for a log that names none.
_USUAL_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


class Batch(NamedTuple):
    """Rows and tokens in a row."""

    name: str  # "train" or "eval"
    rows: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What is known of the model and the batches; 0 or empty: not known."""

    vocab_size: int = 0
    heads: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    parameter_sizes: tuple[tuple[str, int], ...] = ()  # name and number of elements, distinct shapes only
    trainable: int = 0
    batches: tuple[Batch, ...] = ()


class Factors(NamedTuple):
    """A product that gives the request. `kind`: logits, scores, parameter, activation. `exact`: with known lengths."""

    kind: str
    batch: str
    arithmetic: str
    exact: bool


def factor(requested_bytes: int, tolerance_bytes: int, known: Dimensions) -> list[Factors]:
    """The products that give the request, the most telling first."""
    if requested_bytes in _TELLS_NOTHING or requested_bytes < 8 * MIB:
        return []
    low, high = requested_bytes - tolerance_bytes, requested_bytes + tolerance_bytes
    found = [factors for factors, size in _products(known) if low <= size <= high]
    if not any(factors.kind == "logits" for factors in found):
        found += _logits_of_some_length(requested_bytes, low, high, known)
    order = ("logits", "scores", "parameter", "activation")
    return sorted(found, key=lambda factors: (not factors.exact, order.index(factors.kind)))


def _products(known: Dimensions) -> Iterator[tuple[Factors, int]]:
    for batch in known.batches:
        tokens = batch.rows * batch.length
        for width, words in _WIDTHS:
            shape = f"{batch.rows} × {batch.length}"
            if known.vocab_size:
                text = f"{shape} tokens × {known.vocab_size} vocabulary × {words}"
                yield Factors("logits", batch.name, text, True), tokens * known.vocab_size * width
                # The loss is computed on all positions but the last.
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
    """With varying lengths: a number of tokens up to the longest batch, more than a quarter of it, that fits."""
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
