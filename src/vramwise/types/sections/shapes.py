"""How samples become the rows of a batch: lengths, packing, padding, order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Lengths are in tokens."""

    sequence_len: int
    sample_packing: bool
    # "one": one row of micro × sequence_len tokens, for variable-length attention; "micro": micro rows
    packing_rows: Literal["none", "one", "micro"]
    # How samples are packed into rows. "full": every row counts as full; "single": one sample per row, and the rows of
    # a batch are joined.
    packing_fill: Literal["full", "best_fit", "best_fit_split", "stream", "knapsack", "single"]
    packed_together: int  # number of samples that packing considers together
    # The attention mask of packed rows: built from their positions, made by the collator, or none (rows count as full)
    packed_mask: Literal["built", "batch", "none"]
    pad_to_sequence_len: bool
    pad_multiple: int  # batch widths are rounded up to a multiple of this; 1: not rounded
    constant_shapes: bool
    can_pad: bool  # False: padding has no effect on how batches are made (images, flattened batches)
    samples_apart: bool  # packed samples do not attend to one another
    group_by_length: bool
    shuffle_seed: int | None  # the seed for drawing rows; None: in file order, or in another order
    long_rows: Literal["drop", "cut"]  # what happens to samples longer than sequence_len
    # Which tokens of a sample are trained on; "completions": those after the prompt, if the data separates prompts
    labels_on: Literal["all", "completions", "answers", "last_answer"]


NEUTRAL = Shapes(
    sequence_len=1024,
    sample_packing=False,
    packing_rows="none",
    packing_fill="full",
    packed_together=1000,
    packed_mask="built",
    pad_to_sequence_len=False,
    pad_multiple=1,
    constant_shapes=False,
    can_pad=True,
    samples_apart=True,
    group_by_length=False,
    shuffle_seed=None,
    long_rows="cut",
    labels_on="all",
)
NEUTRAL_WHY = "one sample a row, padded to the longest of its batch"
