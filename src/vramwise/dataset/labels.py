"""How many tokens of each sample are trained on, by what a run puts labels on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.dataset.samples import Sample

# Tokens that a template sets behind an answer, which are learnt with it; an estimate.
_END = 2


def labelled_by(samples: Sequence[Sample], tokens: Sequence[int]) -> Mapping[str, Sequence[int]] | None:
    """For each of `RunSpec.labels_on`; None where no row says what of it is an answer.

    An answer has the share of its row's tokens that it has of the row's text.
    """
    if not any(sample.answers or sample.labelled is not None for sample in samples):
        return None
    pairs = list(zip(samples, tokens, strict=True))
    stated = any(sample.labelled is not None for sample in samples)
    return {
        **({"all": [_whole(one, count) for one, count in pairs]} if stated else {}),
        "completions": [_of(one, count, one.answers) if one.prompted else _whole(one, count) for one, count in pairs],
        "answers": [_of(one, count, one.answers) for one, count in pairs],
        "last_answer": [_of(one, count, one.answers[-1:]) for one, count in pairs],
    }


def _whole(sample: Sample, tokens: int) -> int:
    return tokens if sample.labelled is None else sample.labelled


def _of(sample: Sample, tokens: int, answers: Sequence[int]) -> int:
    if sample.labelled is not None or not sample.answers:
        return _whole(sample, tokens)
    plain = max(0, tokens - sample.extra)
    return min(tokens, round(plain * sum(answers) / max(1, len(sample.text))) + _END * len(answers))
