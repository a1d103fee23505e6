"""Texts to numbers of tokens: with the model's own tokenizer where it lies here, else estimated, and said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vramwise.dataset.samples import Sample
from vramwise.errors import VramwiseError

# UTF-8 bytes a token where no tokenizer is at hand: English text has more than 4, code about 3. Rather too long a row
# than one that does not fit.
BYTES_PER_TOKEN = 3
# Rows that are really tokenised: the longest, which decide the peak, and some of all for the ratio of the others.
_LONGEST = 64
_SAMPLED = 192
_MOST_BYTES = 2 * 2**20
_LARGEST_TOKENIZER = 64 * 2**20

Counter = Callable[[Sequence[str]], list[int]]


def count_tokens(samples: Sequence[Sample], counter: Counter | None) -> list[int]:
    """A length for each sample: stated, counted, or by bytes at the ratio that the counted ones have."""
    sizes = [len(sample.text.encode("utf-8", "surrogatepass")) for sample in samples]
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
    return dict(zip(chosen, counter([samples[index].text for index in chosen]), strict=True))


def tokenizer_in(folder: Path | None) -> Counter | None:
    """The tokenizer of a model's folder; None where it or the `tokenizers` package is not here, or cannot be read."""
    if folder is None:
        return None
    path = folder / "tokenizer.json"
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_TOKENIZER:
            return None
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # the package raises bare Exceptions, and panics that are not even those
        return None

    def counter(texts: Sequence[str]) -> list[int]:
        plain = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        try:
            return [len(found.ids) for found in tokenizer.encode_batch(plain, add_special_tokens=False)]
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            message = f"{path} fails on the data ({str(error)[:200]}): without this file lengths are estimated"
            raise VramwiseError(message) from error

    return counter
