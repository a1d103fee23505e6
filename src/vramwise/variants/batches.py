"""The batches of a run: the shapes that samples form, in order, and which of them are simulated, over how many steps.

There are default lengths if none are given. Padding is handled in the ghost run (`ghost/loops/batches.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramwise.errors import VramwiseError
from vramwise.ghost.loops.batches import (
    BatchShape,
    from_lengths,
    goes_by_labels,
    labels_in,
    largest,
    reads_tokens,
    rows_a_sample,
)
from vramwise.types import ModelSpec, RunSpec
from vramwise.types.actions import action
from vramwise.variants.lengths import Lengths
from vramwise.variants.packing import joined_batches, joins_rows, packed_batches
from vramwise.variants.shuffling import permutation

# The multiple that collators usually round widths up to.
_USUAL_MULTIPLE = 64


def rows_unlimited(run: RunSpec) -> bool:
    """Return whether nothing known limits the rows of a run: their longest is only assumed."""
    origin = run.origins.get("sequence_len")
    return origin is not None and origin.kind == "assumed" and run.objective.completion_len is None


def train_shapes(run: RunSpec, lengths: Lengths | None) -> list[BatchShape]:
    """Return the micro-batches of training in order; a single one if every batch has the same shape."""
    if lengths is None:
        return [_likely_largest(run)]
    return _as_drawn(run, lengths, evaluation=False) or _batches(run, lengths, evaluation=False)


def _as_drawn(run: RunSpec, lengths: Lengths, *, evaluation: bool) -> list[BatchShape]:
    """Return the batches that the trainer's own loader made; none if this run has rows of another number or limit."""
    if not lengths.drawn:
        return []
    full = largest(run, evaluation=evaluation)
    first = lengths.drawn[0]
    fits = rows_unlimited(run) or max(shape.width for shape in lengths.drawn) <= full.width
    if (first.rows != full.rows and len(lengths.drawn) > 1) or not fits:
        return []
    by_tokens, by_labels = reads_tokens(run), goes_by_labels(run)
    return [
        shape._replace(
            tokens=shape.tokens if by_tokens and shape.padded else None, labelled=shape.labelled if by_labels else None
        )
        for shape in lengths.drawn
    ]


def eval_shapes(run: RunSpec, lengths: Lengths | None) -> list[BatchShape]:
    """Return the batches of one evaluation, if any.

    Without lengths there are two, because the second one reuses the cache of the first.
    """
    if run.evaluation.eval_batch_size is None or run.evaluation.eval_sequence_len is None:
        return []
    if lengths is not None:
        return _as_drawn(run, lengths, evaluation=True) or _batches(run, lengths, evaluation=True)
    return [_likely_largest(run, evaluation=True)] * 2


def _likely_largest(run: RunSpec, *, evaluation: bool = False) -> BatchShape:
    """Return the widest batch that the settings allow, with shorter rows in it, which need a mask."""
    shape = largest(run, evaluation=evaluation)
    packed = run.evaluation.eval_sample_packing if evaluation else run.shapes.packing_rows != "none"
    if packed or run.objective.completion_len is not None:
        return shape
    return shape._replace(padded=shape.rows > 1 or run.shapes.pad_to_sequence_len)


def first_and_widest(shapes: Sequence[BatchShape], group: int, most: int) -> list[BatchShape]:
    """Return the first `most` batches, in whole groups, and the group with the widest batch if it comes later."""
    kept = max(1, most // group) * group
    if len(shapes) <= kept:
        return list(shapes)
    whole = len(shapes) - len(shapes) % group
    widest = max(range(whole), key=lambda number: shapes[number].rows * shapes[number].width)
    start = widest - widest % group
    return [*shapes[:kept], *(shapes[start : start + group] if start >= kept else ())]


def _batches(run: RunSpec, lengths: Lengths, *, evaluation: bool) -> list[BatchShape]:
    if rows_unlimited(run) and not run.shapes.sample_packing:  # an assumed length cuts no real row
        longest = max(lengths.tokens)
        run = run.changed(sequence_len=longest, eval_sequence_len=longest)
    if lengths.packed:
        return _packed(run, lengths, evaluation=evaluation)
    if evaluation and joins_rows(run):
        return joined_batches(run, lengths.tokens)
    if run.shapes.packing_fill != "full" and (run.evaluation.eval_sample_packing or not evaluation):
        labels, in_order = lengths.labels(run), not lengths.unshuffled
        return packed_batches(run, lengths.tokens, labels, evaluation=evaluation, in_order=in_order)
    lengths = lengths if evaluation else _shuffled(run, lengths)
    are_widths = lists_widths(lengths.tokens, run.shapes.pad_multiple)
    labelled = lengths.labels(run)
    if lengths.pairs and run.objective.kind == "kto":
        cut = run.changed(long_rows="cut")  # so that both rows of a sample stay together
        own, others = [
            from_lengths(
                cut,
                lengths.tokens[start::2],
                evaluation=evaluation,
                are_widths=are_widths,
                labelled=labelled and labelled[start::2],
            )
            for start in (0, 1)
        ]
        return [
            shape._replace(mismatched=other.width, mismatched_labelled=labels_in(other))
            for shape, other in zip(own, others, strict=True)
        ]
    rows = row_lengths(run, lengths)
    if labelled is not None and rows is not lengths.tokens:
        labelled = [count for count in labelled for _ in range(rows_a_sample(run))]
    return from_lengths(run, rows, evaluation=evaluation, are_widths=are_widths, labelled=labelled)


def _shuffled(run: RunSpec, lengths: Lengths) -> Lengths:
    """Return the samples in the order in which the sampler draws them in the first epoch."""
    if not lengths.unshuffled or run.shapes.shuffle_seed is None or run.shapes.sample_packing:
        return lengths
    order = permutation(len(lengths.tokens), run.shapes.shuffle_seed)
    labels = lengths.labels(run)
    return replace(
        lengths,
        tokens=[lengths.tokens[number] for number in order],
        labelled=labels and [labels[number] for number in order],
        labelled_by=None,
        unshuffled=False,
    )


def _packed(run: RunSpec, lengths: Lengths, *, evaluation: bool) -> list[BatchShape]:
    full = largest(run, evaluation=evaluation)
    unknown: Sequence[None] = [None] * len(lengths.tokens)
    known = zip(lengths.tokens, lengths.labelled or unknown, lengths.samples or unknown, strict=True)
    return [full._replace(width=width, labelled=count, samples=samples) for width, count, samples in known]


def row_lengths(run: RunSpec, lengths: Lengths) -> Sequence[int]:
    """Return the length of every row; a pair has two rows, of equal length if only one length is given.

    Raises VramwiseError for pairs if the training uses single samples.
    """
    each = rows_a_sample(run)
    if lengths.pairs and each == 1 and run.objective.kind != "kto":
        kind = run.objective.rl or "text"
        raise VramwiseError(
            f"the lengths are pairs, but {kind} training uses single samples: write one length per line"
        )
    if lengths.pairs or each == 1:
        return lengths.tokens
    return [length for length in lengths.tokens for _ in range(each)]


def lists_widths(tokens: Sequence[int], multiple: int) -> bool:
    """Return whether these are batch widths rather than sample lengths: they vary, but are all round numbers."""
    step = multiple if multiple > 1 else _USUAL_MULTIPLE
    return len(set(tokens)) > 1 and all(count % step == 0 for count in tokens)


def varied_lengths(run: RunSpec, batches: int = 8) -> Lengths:
    """Return lengths spread evenly between an eighth and the whole of sequence_len, for runs without data.

    The longest comes last: in a real run, the widest batch meets a cache that narrower ones have fragmented.
    """
    longest = run.shapes.sequence_len
    shortest = max(1, longest // 8)
    count = batches * run.batch.micro_batch_size * run.batch.gradient_accumulation_steps
    golden = 0.6180339887498949  # multiples of it, modulo 1, are very evenly distributed
    tokens = [shortest + round((longest - shortest) * (number * golden % 1)) for number in range(1, count)]
    return Lengths(
        tokens=[*tokens, longest],
        assumptions=(f"lengths spread evenly up to {run.keys.get('sequence_len', 'sequence_len')}",),
    )


# The default number of batches of --lengths to simulate: enough to cover the widths, and a few seconds at most.
_MOST_BATCHES = 64
# The limit on batches of different shapes × layers, which time and memory depend on: seconds, and hundreds of
# megabytes.
_LAYERS_SIMULATED = 2048
_LAYERS_SIMULATED_ON_REQUEST = 4096
_FEWEST_BATCHES = 4


def simulated_batches(
    run: RunSpec, model: ModelSpec, lengths: Lengths | None, eval_lengths: Lengths | None, steps: int | None
) -> tuple[list[BatchShape], list[BatchShape], int, list[str]]:
    """Return the batches of training and evaluation, the number of steps, and notes.

    If all would take too long, only the first batches and the widest are used, and a note says so.
    """
    said = []
    train, evals = train_shapes(run, lengths), eval_shapes(run, eval_lengths)
    each, layers = run.batch.gradient_accumulation_steps, model.num_hidden_layers
    most = max(_FEWEST_BATCHES, min(_MOST_BATCHES, _LAYERS_SIMULATED // layers))
    known = len(train)
    if steps is None:
        train = first_and_widest(train, each, most)
        taken = _steps(train, each, lengths)
        if len(train) < known:
            said.append(
                f"{len(train)} of {known:,} micro-batches are simulated, the first and the widest: "
                f"{action('simulate more')}"
            )
    elif len(set(train)) > 1 and steps * each > (more := max(_FEWEST_BATCHES, _LAYERS_SIMULATED_ON_REQUEST // layers)):
        # Steps of the same shape are counted, not simulated one by one; these steps differ.
        train = first_and_widest(train, each, more)
        taken = min(steps, max(_steps(train, each, lengths), more // each))
        said.append(f"{taken:,} of {steps:,} steps are simulated: the first and the one with the widest batch")
    else:
        taken = steps
    known = len(evals)
    evals = first_and_widest(evals, 1, most)
    if len(evals) < known:
        said.append(f"{len(evals)} of {known:,} evaluation batches are simulated: the first and the widest")
    return train, evals, taken, said


def _steps(shapes: Sequence[object], each: int, lengths: Lengths | None) -> int:
    """Return enough steps to reach the steady peak; with lengths, one pass over them."""
    if lengths is None:
        return 3
    return max(3, len(shapes) // each)
