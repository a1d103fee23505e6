"""Count tokens: with the model's own tokenizer if it is on this machine, otherwise estimated, and reported as such."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from vramwise.limits import ceilings
from vramwise.limits.child import child_lines
from vramwise.opening.data.samples import Sample

# UTF-8 bytes per token without a tokenizer: English text has more than 4, code about 3. Overestimating a row is better
# than an out-of-memory.
BYTES_PER_TOKEN = 3
# Rows that are actually tokenised: the longest, which decide the peak, and a sample for the ratio of the others.
_LONGEST = 64
_SAMPLED = 192
_MOST_BYTES = 2 * 2**20

Counter = Callable[[Sequence[bytes]], list[int]]


def count_tokens(samples: Sequence[Sample], counter: Counter | None) -> list[int]:
    """Return a length for each sample: stated, counted, or estimated from bytes with the ratio of the counted ones."""
    sizes = [len(sample.text) for sample in samples]
    counted = _counted(samples, sizes, counter) if counter is not None else {}
    spent = sum(sizes[index] for index in counted)
    ratio = sum(counted.values()) / spent if spent else 1 / BYTES_PER_TOKEN
    return [
        max(1, sample.tokens or counted.get(index, -int(-sizes[index] * ratio // 1)) + sample.extra)
        for index, sample in enumerate(samples)
    ]


def _counted(samples: Sequence[Sample], sizes: Sequence[int], counter: Counter) -> dict[int, int]:
    texts = [index for index, sample in enumerate(samples) if sample.tokens is None and sizes[index]]
    longest = sorted(texts, key=lambda index: -sizes[index])[:_LONGEST]
    wanted = dict.fromkeys([*longest, *texts[:: max(1, len(texts) // _SAMPLED)]])
    chosen, spent = [], 0
    for index in wanted:
        spent += sizes[index]
        if spent > _MOST_BYTES:
            break
        chosen.append(index)
    return dict(zip(chosen, counter([samples[index].text for index in chosen]), strict=True)) if chosen else {}


class TokenizerFailed(Exception):  # noqa: N818 (it reads as what happened)
    """A tokenizer cannot be read, or exceeds its limits."""


def tokenizer_in(folder: Path | None) -> Counter | None:
    """Return the tokenizer of a model's folder; None if it or the `tokenizers` package is missing.

    It runs in its own process: the file holds patterns, and tables of any size. Calling it may raise TokenizerFailed.
    """
    path = None if folder is None else folder / "tokenizer.json"
    try:
        if path is None or not path.is_file() or path.stat().st_size > ceilings.DATA_BYTES:
            return None
    except OSError:
        return None
    if importlib.util.find_spec("tokenizers") is None:
        return None

    def counter(texts: Sequence[bytes]) -> list[int]:
        plain = [text.decode("utf-8", "surrogatepass").encode("utf-8", "replace").decode() for text in texts]
        try:
            lines = list(
                child_lines(
                    "vramwise.opening.data.tokens_child", str(path.absolute()), given=json.dumps(plain).encode()
                )
            )
            counts = [int(line) for line in lines]
        except (OSError, ValueError) as error:
            raise TokenizerFailed(str(path)) from error
        if len(counts) != len(texts):
            raise TokenizerFailed(str(path))
        return counts

    return counter
