"""Unsloth's own rules of one condition and one sentence: several cards."""

from __future__ import annotations

from functools import partial

from vramwise.rules.rows import row
from vramwise.types import Severity

_row = partial(row, topic="sharding")
_FILE = "model: unsloth/Llama-3.2-1B\ntraining:\n  max_seq_length: 2048\n  batch_size: 2\n"

several_cards = _row(
    id="several-cards-one-used",
    severity=Severity.WARNING,
    still_runs=True,
    text="""Unsloth trains on one card unless it is started with torchrun.

    Started with `python`, in a notebook, or by its own command, a run loads the model onto one card and leaves the
    others idle. `torchrun --nproc_per_node N script.py` gives each card a whole copy of the model and a share of the
    batch. `device_map = "balanced"` spreads the layers of one copy over the cards, which then work in turn: it makes
    room for a larger model and does not train faster.
    """,
    bad=_FILE,
    good=_FILE,
    options="--gpus 2",
    good_options="--gpus 1",
    beyond_trainer="Unsloth says how many cards it found, and uses one.",
    when=lambda run: run.target.gpus > 1 and run.sharding.kind == "ddp",
    field="gpus",
    message=lambda run: (
        f"{run.target.gpus} cards: only torchrun makes Unsloth use them all, and each holds the whole model"
    ),
)
