"""val-set-with-test-datasets"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="val-set-with-test-datasets",
    severity=Severity.ERROR,
    topic="eval",
    bad="val_set_size: 0.05\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
    good="val_set_size: 0\ntest_datasets:\n  - path: ./test.jsonl\n    type: alpaca\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Evaluation data is given twice: `val_set_size` and `test_datasets`.

    `val_set_size` splits a share off the training data, `test_datasets` names data of its own; Axolotl evaluates on one
    of them and refuses both. Keep `test_datasets` and the split-off share goes back into training; keep `val_set_size`
    and the named datasets stay unused. Streamed data cannot be split at all: there only `test_datasets` works.
    """
    size = run.config.get("val_set_size")
    if not size:
        return
    streamed = next((key for key in ("pretraining_dataset", "streaming") if run.config.get(key)), None)
    if run.config.get("test_datasets"):
        message = f"val_set_size {size:g} together with test_datasets: Axolotl refuses two sources of evaluation data"
    elif streamed:
        message = (
            f"val_set_size {size:g} with {streamed}: a stream cannot be split, Axolotl refuses it; use test_datasets"
        )
    else:
        return
    yield Hit(key="val_set_size", message=message, fix=unsafe("Split nothing off", delete_key("val_set_size")))
