"""How samples become the rows of a batch: lengths, packing, padding, order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Lengths are in tokens."""

    neutral_why: ClassVar[str] = "one sample a row, padded to the longest of its batch"

    sequence_len: int = field(metadata=setting(1024))
    sample_packing: bool = field(metadata=setting(False, compared=False))
    # "one": one row of micro × sequence_len tokens, for variable-length attention; "micro": micro rows
    packing_rows: Literal["none", "one", "micro"] = field(metadata=setting("none", compared=False))
    # How samples are packed into rows. "full": every row counts as full; "single": one sample per row, and the rows of
    # a batch are joined.
    packing_fill: Literal["full", "best_fit", "best_fit_split", "stream", "knapsack", "single"] = field(
        metadata=setting("full", compared=False, rare=True)
    )
    # number of samples that packing considers together
    packed_together: int = field(metadata=setting(1000, ghost=False, rare=True))
    # The attention mask of packed rows: built from their positions, made by the collator, or none (rows count as full)
    packed_mask: Literal["built", "batch", "none"] = field(metadata=setting("built", rare=True))
    pad_to_sequence_len: bool = field(metadata=setting(False, ghost=False, compared=False))
    # batch widths are rounded up to a multiple of this; 1: not rounded
    pad_multiple: int = field(metadata=setting(1, ghost=False))
    constant_shapes: bool = field(metadata=setting(False, ghost=False, compared=False))
    # False: padding has no effect on how batches are made (images, flattened batches)
    can_pad: bool = field(metadata=setting(True, compared=False))
    samples_apart: bool = field(metadata=setting(True, compared=False))  # packed samples do not attend to one another
    group_by_length: bool = field(metadata=setting(False, ghost=False, compared=False))
    # the seed for drawing rows; None: in file order, or in another order
    shuffle_seed: int | None = field(metadata=setting(None, ghost=False, compared=False))
    # what happens to samples longer than sequence_len
    long_rows: Literal["drop", "cut"] = field(metadata=setting("cut", ghost=False, compared=False))
    # Which tokens of a sample are trained on; "completions": those after the prompt, if the data separates prompts
    labels_on: Literal["all", "completions", "answers", "last_answer"] = field(
        metadata=setting("all", ghost=False, compared=False, rare=True)
    )
