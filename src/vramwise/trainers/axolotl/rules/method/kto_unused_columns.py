"""kto-unused-columns"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="kto-unused-columns",
    severity=Severity.ERROR,
    topic="method",
    bad="rl: kto\nmicro_batch_size: 2\n",
    good="rl: kto\nmicro_batch_size: 2\nremove_unused_columns: false\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """KTO training without `remove_unused_columns: false`.

    The trainer drops data columns that the model's forward does not name. KTO's labels and completions are such
    columns, so nothing would be left to learn from; Axolotl refuses the config until `remove_unused_columns: false` is
    written (`skip_prepare_dataset: true` brings it along).
    """
    kept = run.config.get("remove_unused_columns", not run.config.get("skip_prepare_dataset")) is False
    if run.objective.rl == "kto" and not kept:
        yield Hit(
            key="remove_unused_columns",
            near=("rl",),
            message="rl: kto without remove_unused_columns: false is refused: KTO's own columns would be dropped",
            fix=safe("Keep the columns", insert_key("remove_unused_columns", False, beside="rl")),
        )
