"""Axolotl's own rules of one condition and one sentence: eval."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, unsafe
from vramwise.rules.rows import Case, row

_row = partial(row, topic="eval")


def _streamed(key: str) -> Case:
    return Case(
        when=key,
        message=lambda run: (
            f"val_set_size {run.config.get('val_set_size'):g} with {key}: a stream cannot be split, Axolotl refuses "
            "it; use test_datasets"
        ),
    )


val_set_with_test_datasets = _row(
    id="val-set-with-test-datasets",
    text="""Evaluation data is given twice: `val_set_size` and `test_datasets`.

    `val_set_size` splits a share off the training data, `test_datasets` names data of its own; Axolotl evaluates on one
    of them and refuses both. Keep `test_datasets` and the split-off share goes back into training; keep `val_set_size`
    and the named datasets stay unused. Streamed data cannot be split at all: there only `test_datasets` works.
    """,
    bad="val_set_size: 0.05\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
    good="val_set_size: 0\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
    when="val_set_size",
    key="val_set_size",
    fix=unsafe("Split nothing off", delete_key("val_set_size")),
    first_case=True,
    cases=(
        Case(
            when="test_datasets",
            message=lambda run: (
                f"val_set_size {run.config.get('val_set_size'):g} together with test_datasets: Axolotl refuses two "
                "sources of evaluation data"
            ),
        ),
        *map(_streamed, ("pretraining_dataset", "streaming")),
    ),
)
