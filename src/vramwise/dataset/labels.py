"""How many tokens of each sample are trained on, depending on what a run puts labels on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.dataset.samples import Sample

# Tokens that a template adds after an answer and that are trained on with it; an estimate.
_END = 2


def labelled_by(samples: Sequence[Sample], tokens: Sequence[int]) -> Mapping[str, Sequence[int]] | None:
    """Return the trained tokens of each sample for every value of `RunSpec.labels_on`.

    None if no row says which part is an answer. An answer's share of the tokens equals its share of the text.
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
