"""Lengths of samples in tokens: read from the user's input, or estimated from text, with a note that says so.

Knows no tokenizers and no batches (see `batches.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, json_memory_bytes, parse_json
from vramwise.limits.json_values import OverBudget
from vramwise.types import RunSpec
from vramwise.units import gib

if TYPE_CHECKING:
    from vramwise.ghost.loops.batches import BatchShape

# UTF-8 bytes per token of English text, for samples given as text.
_BYTES_PER_TOKEN = 4
# A sample longer than this is a mistake.
_LONGEST = 2**31 - 1
_LONGEST_DIGITS = 100  # including leading zeros
# A limit on the number of samples: reading and batching one takes 6 µs.
_MOST_LINES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Sample lengths in tokens, in training order, and the assumptions behind them.

    `pairs`: every sample is a chosen and a rejected row, adjacent in `tokens`; for KTO, a row and the mismatched one of
    its KL term. `whole`: these are all samples. `labelled`: how many tokens of each row, the last ones, are trained on.
    `packed`: these are widths of packed batches, with `samples` in each. `unshuffled`: they are in the data's order,
    which a sampler will shuffle. `labelled_by`: the labelled tokens of each row for each value of `RunSpec.labels_on`;
    a missing value means all. `described`: a sentence about the data. `unread`: the assumptions about data beyond a
    reading limit. `drawn`: the micro-batches that a live trainer's own loader makes of them, in order.
    """

    tokens: Sequence[int]
    assumptions: tuple[str, ...] = ()
    described: str = ""
    pairs: bool = False
    whole: bool = True
    labelled: Sequence[int] | None = None
    packed: bool = False
    samples: Sequence[int] | None = None
    unshuffled: bool = False
    unread: tuple[str, ...] = ()
    labelled_by: Mapping[str, Sequence[int]] | None = None
    drawn: Sequence[BatchShape] = ()

    @property
    def count(self) -> int:
        """The number of samples."""
        return len(self.tokens) // self._each

    @property
    def _each(self) -> int:
        return 2 if self.pairs else 1

    def longest(self, number: int) -> int:
        """Return the tokens of a sample; for a pair, those of the longer row."""
        return max(self.tokens[number * self._each : (number + 1) * self._each])

    def at(self, numbers: Sequence[int]) -> Lengths:
        """Return the samples with these numbers, in this order."""
        places = [number * self._each + row for number in numbers for row in range(self._each)]
        held = None if self.labelled is None else [self.labelled[place] for place in places]
        by = self.labelled_by
        each = None if by is None else {on: [counts[place] for place in places] for on, counts in by.items()}
        tokens = [self.tokens[place] for place in places]
        return replace(self, tokens=tokens, labelled=held, labelled_by=each)

    def labels(self, run: RunSpec) -> Sequence[int] | None:
        """Return how many tokens of each row are trained on in this run; None if unknown or all."""
        if self.labelled is not None or self.labelled_by is None:
            return self.labelled
        return self.labelled_by.get(run.shapes.labels_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Lengths for training and evaluation; `notes`: what was not read, and why.

    `named`: the data that the user named, "" for none; None: the config's own files were used.
    """

    train: Lengths | None = None
    evaluation: Lengths | None = None
    notes: tuple[str, ...] = ()
    named: str | None = None

    @property
    def unread(self) -> tuple[str, ...]:
        """What is unknown about the data although it is here: unreadable, or beyond a reading limit."""
        both = [*self.notes, *(said for one in (self.train, self.evaluation) if one is not None for said in one.unread)]
        return tuple(dict.fromkeys(both))

    @property
    def samples(self) -> int:
        """The number of lengths."""
        return sum([len(one.tokens) for one in (self.train, self.evaluation) if one is not None])


NO_DATA = Data()


def parse_lengths(text: str, name: str) -> Lengths:
    """Parse sample lengths; the first line decides the format.

    The formats: one length per line; `[chosen, rejected]` per line for pairs; or JSON lines of samples with `length`,
    `input_ids` or text, pairs with `chosen` and `rejected`, all optionally with `labelled`. Raises VramwiseError for
    invalid lines.
    """
    # Editors on Windows may write a byte order mark. Only these line breaks count: JSON strings may contain others.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    count = text.count("\n")
    if count > _MOST_LINES:
        raise VramwiseError(f"{name} has {count:,} lines: the limit is {_MOST_LINES:,}; keep the first ones")
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise VramwiseError(f"{name} contains no lengths: write one sample length per line")
    if lines[0][1].startswith("["):
        return Lengths(tokens=[length for number, line in lines for length in _pair(line, name, number)], pairs=True)
    if not lines[0][1].startswith("{"):
        return Lengths(tokens=[_whole(line, name, number) for number, line in lines])
    if json_memory_bytes(text.encode("utf-8", "surrogatepass")) > ceilings.DATA_VALUES_BYTES:
        most = gib(ceilings.DATA_VALUES_BYTES)
        raise VramwiseError(
            f"{name}: its samples take more than {most} of memory: write only the lengths, one per line"
        )
    return _of_samples(lines, name)


def _of_samples(lines: Sequence[tuple[int, str]], name: str) -> Lengths:
    estimated = False
    tokens: list[int] = []
    labelled: list[int] = []
    each = 0
    for number, line in lines:
        sample = _sample(line, name, number)
        found, guessed = _sample_lengths(sample, name, number)
        labelled += _labelled(sample, found, name, number)
        each = each or len(found)
        if len(found) != each:
            raise VramwiseError(f"{name}:{number}: pairs and single samples are mixed: use one kind")
        tokens += found
        estimated |= guessed
    note = f"{name}: lengths of text samples estimated at {_BYTES_PER_TOKEN} bytes per token"
    if labelled and len(labelled) != len(tokens):
        raise VramwiseError(f"{name}: only some samples have `labelled`: set it for all or none")
    return Lengths(tokens=tokens, assumptions=(note,) if estimated else (), pairs=each == 2, labelled=labelled or None)


def _sample(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        sample = parse_json(line)
    except OverBudget as error:
        raise VramwiseError(f"{name}:{number}: {error}: use only `length`") from error
    except ValueError as error:
        raise VramwiseError(f"{name}:{number}: not JSON: expected one sample per line") from error
    if not isinstance(sample, dict):
        raise VramwiseError(f"{name}:{number}: a sample must be a JSON object")
    return sample


def _labelled(sample: Mapping[str, Any], lengths: Sequence[int], name: str, number: int) -> list[int]:
    """Return `labelled` for each row of the sample; empty if it is not given."""
    stated = sample.get("labelled")
    if stated is None:
        return []
    counts = stated if isinstance(stated, list) else [stated]
    whole = all(isinstance(count, int) and not isinstance(count, bool) for count in counts)
    if len(counts) != len(lengths) or not whole or not all(0 <= c <= n for c, n in zip(counts, lengths, strict=True)):
        shown = json.dumps(stated)[:40]
        raise VramwiseError(
            f"{name}:{number}: `labelled` is {shown}: expected the number of trained tokens in the sample"
        )
    return list(counts)


def _whole(line: str, name: str, number: int) -> int:
    if not line.isascii() or not line.isdigit() or len(line) > _LONGEST_DIGITS or not 0 < int(line) <= _LONGEST:
        raise VramwiseError(
            f"{name}:{number}: '{line[:40]}' is not a length: write one whole number of tokens per line"
        )
    return int(line)


def _pair(line: str, name: str, number: int) -> tuple[int, int]:
    """Parse `[chosen, rejected]`; a single number counts for both."""
    if line.isdigit():
        length = _whole(line, name, number)
        return length, length
    try:
        pair = parse_json(line)
    except (ValueError, OverBudget):
        pair = None
    if not isinstance(pair, list) or len(pair) != 2 or not all(_is_length(length) for length in pair):
        raise VramwiseError(
            f"{name}:{number}: '{line[:40]}' is not a pair: write [chosen, rejected] per line, as whole numbers of "
            "tokens"
        )
    return pair[0], pair[1]


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LONGEST


def _sample_lengths(sample: Mapping[str, Any], name: str, number: int) -> tuple[Sequence[int], bool]:
    """Return the length of a sample (two for a pair), and whether it is estimated."""
    stated = sample.get("length")
    if isinstance(stated, list) and len(stated) == 2:
        return [_stated(length, name, number) for length in stated], False
    if stated is not None:
        return [_stated(stated, name, number)], False
    if isinstance(sample.get("input_ids"), list):
        return [max(1, len(sample["input_ids"]))], False
    if sample.get("chosen") and sample.get("rejected"):
        rest = {key: value for key, value in sample.items() if key not in ("chosen", "rejected")}
        return [_estimated([_prompt_of(sample[key], rest), sample[key]]) for key in ("chosen", "rejected")], True
    if not any(True for _ in _texts(sample)):
        raise VramwiseError(f"{name}:{number}: a sample without `length`, `input_ids` or text")
    return [_estimated(sample)], True


def _prompt_of(answer: object, rest: dict[str, object]) -> object:
    """Return what precedes an answer: nothing if the answer is a whole conversation."""
    return rest if isinstance(answer, str) else ""


def _estimated(sample: object) -> int:
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in _texts(sample))
    return max(1, -(-size // _BYTES_PER_TOKEN))


def _stated(length: object, name: str, number: int) -> int:
    if not _is_length(length):
        shown = json.dumps(length)[:40]
        raise VramwiseError(f"{name}:{number}: `length` is {shown}: expected a whole number of tokens above 0")
    assert isinstance(length, int)
    return length


def _texts(value: object) -> Iterator[str]:
    """Yield every text inside a value, in no particular order; a stack handles deep nesting."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            inner = value.values() if isinstance(value, dict) else value
            waiting += [item for item in inner if isinstance(item, (str, dict, list))]
