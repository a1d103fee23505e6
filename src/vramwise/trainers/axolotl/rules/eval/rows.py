"""Axolotl rules with one condition and one message: eval."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, unsafe
from vramwise.rules.rows import Case, row

_row = partial(row, topic="eval")


def _streamed(key: str) -> Case:
    return Case(
        when=key,
        message=lambda run: (
            f"Axolotl refuses val_set_size {run.config.get('val_set_size'):g} with {key}: a stream cannot be split; "
            "use test_datasets"
        ),
    )


val_set_with_test_datasets = _row(
    id="val-set-with-test-datasets",
    text="""Both `val_set_size` and `test_datasets` are set.

    `val_set_size` splits a share off the training data. `test_datasets` names separate data. Axolotl refuses both
    together. If you keep `test_datasets`, the split-off share goes back into training. If you keep `val_set_size`, the
    named datasets are not used. Streamed data cannot be split: use `test_datasets`.
    """,
    bad="val_set_size: 0.05\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
    good="val_set_size: 0\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
    when="val_set_size",
    key="val_set_size",
    fix=unsafe("Delete val_set_size", delete_key("val_set_size")),
    first_case=True,
    cases=(
        Case(
            when="test_datasets",
            message=lambda run: (
                f"Axolotl refuses val_set_size {run.config.get('val_set_size'):g} together with test_datasets: they "
                "are two sources of evaluation data"
            ),
        ),
        *map(_streamed, ("pretraining_dataset", "streaming")),
    ),
)
