"""Packs samples into rows as the trainers do, which gives the real batch widths of a run.

Rows that packing leaves short differ in width, and a cache without expandable segments grows with each new width. Each
packing method is simulated sample by sample as in its source, using only lengths.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vramwise.ghost.loops.batches import BatchShape
from vramwise.types import RunSpec
from vramwise.variants.shuffling import permutation


class Piece(NamedTuple):
    """A sample, or a part of one: its tokens, and how many of them are trained on."""

    tokens: int
    labelled: int


class Row(NamedTuple):
    """A packed row: its tokens, those that are trained on, and the samples in it."""

    tokens: int
    labelled: int
    samples: int


def packed_batches(
    run: RunSpec, tokens: Sequence[int], labelled: Sequence[int] | None, *, evaluation: bool, in_order: bool = False
) -> list[BatchShape]:
    """Return the batches of the first epoch, or of an evaluation, which takes its rows in order.

    `in_order`: the samples are in training order. It counts where each is a row; packed rows are drawn all the same.
    """
    counts = tokens if labelled is None else labelled
    rows = packed_rows(run, [Piece(*pair) for pair in zip(tokens, counts, strict=True)])
    drawn = not (in_order and run.shapes.packing_fill == "single")
    if not evaluation and drawn and run.shapes.shuffle_seed is not None:
        rows = [rows[number] for number in permutation(len(rows), run.shapes.shuffle_seed)]
    size = (run.evaluation.eval_batch_size if evaluation else None) or run.batch.micro_batch_size
    return [_batch(run, rows[start : start + size]) for start in range(0, len(rows), size)]


def joins_rows(run: RunSpec) -> bool:
    """Return whether an evaluation fills one row per batch with as many tokens as fit, in the order of the data.

    Training does so too, but with enough samples for every row to be full.
    """
    packed = run.evaluation.eval_sample_packing and run.shapes.packing_rows == "one"
    return packed and run.shapes.packing_fill == "full"


def joined_batches(run: RunSpec, tokens: Sequence[int]) -> list[BatchShape]:
    """Return the rows of such an evaluation, padded to a multiple of `pad_multiple`.

    Axolotl 0.21: utils/samplers/multipack.py (pack_group), utils/collators/batching.py.
    """
    longest = run.shapes.sequence_len
    room = longest * (run.evaluation.eval_batch_size or run.batch.micro_batch_size)
    rows = _first_fit([min(length, longest) for length in tokens], room)
    return [BatchShape(1, _rounded(run, held), False) for held in rows]


def _first_fit(lengths: Sequence[int], room: int) -> list[int]:
    """Return what each row holds if every sample goes into the first row with room for it.

    A tree with the most room below each node finds that row, because data may have a million samples.
    """
    # two adjacent rows together hold more than one row's worth
    most_rows = min(len(lengths), 2 * sum(lengths) // room + 2)
    leaves = 1 << (most_rows - 1).bit_length()
    most_room = [room] * (2 * leaves)
    for length in lengths:
        node = 1
        while node < leaves:
            node *= 2
            node += most_room[node] < length
        most_room[node] -= length
        while node := node // 2:
            most_room[node] = max(most_room[2 * node], most_room[2 * node + 1])
    return [room - left for left in most_room[leaves:] if left < room]


def packed_rows(run: RunSpec, pieces: Sequence[Piece]) -> list[Row]:
    """Return rows in the order in which packing creates them, in groups of `packed_together` samples."""
    pack = _WAYS[run.shapes.packing_fill]
    count = _of_a_text if run.shapes.packing_fill == "stream" else _of_samples
    groups = (
        pieces[start : start + run.shapes.packed_together]
        for start in range(0, len(pieces), run.shapes.packed_together)
    )
    return [count(row) for group in groups for row in pack(group, run.shapes.sequence_len)]


def _of_samples(pieces: Sequence[Piece]) -> Row:
    """Return a row of samples; the first token of each sample has no prediction, whatever its label."""
    labelled = sum(min(one.labelled, one.tokens - 1) for one in pieces)
    return Row(sum(one.tokens for one in pieces), labelled, len(pieces))


def _of_a_text(pieces: Sequence[Piece]) -> Row:
    """Return a row of continuous text; the first token of the row has no prediction."""
    first = pieces[0].labelled == pieces[0].tokens
    return Row(sum(one.tokens for one in pieces), sum(one.labelled for one in pieces) - first, len(pieces))


def _batch(run: RunSpec, rows: Sequence[Row]) -> BatchShape:
    labelled = sum(row.labelled for row in rows)
    if run.shapes.packing_rows == "one":
        width, samples = (sum(getattr(row, name) for row in rows) for name in ("tokens", "samples"))
        return BatchShape(1, _rounded(run, width), False, labelled=labelled, samples=samples)
    width = _rounded(run, max(row.tokens for row in rows))
    tokens = sum(row.tokens for row in rows)
    padded = tokens < len(rows) * width
    return BatchShape(len(rows), width, padded, tokens if padded else None, labelled=labelled)


def _rounded(run: RunSpec, width: int) -> int:
    multiple = max(run.shapes.pad_multiple, 1)
    return -(-width // multiple) * multiple


def _cut_to(piece: Piece, longest: int) -> Piece:
    """Return a sample cut to the longest allowed length; its labels are its last tokens."""
    over = max(0, piece.tokens - longest)
    return Piece(piece.tokens - over, max(0, piece.labelled - over))


def _parts(piece: Piece, longest: int) -> Iterator[Piece]:
    """Yield a sample in parts of full length and a remainder."""
    unlabelled = piece.tokens - piece.labelled
    for start in range(0, piece.tokens, longest):
        end = min(start + longest, piece.tokens)
        yield Piece(end - start, max(0, end - max(start, unlabelled)))


def _best_fit(pieces: Sequence[Piece], longest: int) -> list[list[Piece]]:
    """Pack the longest first, each into the row with the least sufficient room; the oldest of equal rows."""
    rows: list[list[Piece]] = []
    rooms: list[int] = []  # the distinct rooms of rows with room left, ascending
    by_free_memory: dict[int, list[int]] = {}
    for piece in sorted(pieces, key=lambda one: -one.tokens):
        place = bisect(rooms, piece.tokens - 1)
        if place == len(rooms):
            room = longest
            rows.append([])
            row = len(rows) - 1
        else:
            room = rooms[place]
            row = by_free_memory[room].pop(0)
            if not by_free_memory[room]:
                del rooms[place], by_free_memory[room]
        rows[row].append(piece)
        left = room - piece.tokens
        if left:
            if left not in by_free_memory:
                insort(rooms, left)
            by_free_memory.setdefault(left, []).append(row)
    return rows


def _best_fit_of_cut(pieces: Sequence[Piece], longest: int) -> list[list[Piece]]:
    return _best_fit([_cut_to(piece, longest) for piece in pieces], longest)


def _best_fit_of_parts(pieces: Sequence[Piece], longest: int) -> list[list[Piece]]:
    return _best_fit([part for piece in pieces for part in _parts(piece, longest)], longest)


def _stream(pieces: Sequence[Piece], longest: int) -> Iterator[list[Piece]]:
    """Concatenate all texts and cut them where a row is full; only the last row may be shorter."""
    row: list[Piece] = []
    room = longest
    for piece in pieces:
        left = piece
        while left.tokens > room:
            tail = left.tokens - room
            row.append(Piece(room, max(0, left.labelled - tail)))
            yield row
            row, left, room = [], Piece(tail, min(left.labelled, tail)), longest
        if left.tokens:
            row.append(left)
            room -= left.tokens
    if row:
        yield row


def _knapsacks(pieces: Sequence[Piece], longest: int) -> Iterator[list[Piece]]:
    """Fill one row after the other, each with the longest sample that still fits."""
    ordered = sorted(_cut_to(piece, longest) for piece in pieces)
    lengths = [piece.tokens for piece in ordered]
    while ordered:
        row: list[Piece] = []
        room = longest
        while place := bisect(lengths, room):
            lengths.pop(place - 1)
            row.append(ordered.pop(place - 1))
            room -= row[-1].tokens
        yield row


_WAYS: dict[str, Callable[[Sequence[Piece], int], list[list[Piece]] | Iterator[list[Piece]]]] = {
    "best_fit": _best_fit_of_cut,
    "best_fit_split": _best_fit_of_parts,
    "stream": _stream,
    "knapsack": _knapsacks,
    "single": lambda pieces, longest: ([_cut_to(piece, longest)] for piece in pieces),
}
