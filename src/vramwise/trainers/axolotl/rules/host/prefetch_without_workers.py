"""prefetch-without-workers"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_PREFETCH, _WORKERS = "dataloader_prefetch_factor", "dataloader_num_workers"


@rule(
    id="prefetch-without-workers",
    severity=Severity.ERROR,
    topic="host",
    bad="micro_batch_size: 2\ndataloader_prefetch_factor: 8\n",
    good="micro_batch_size: 2\ndataloader_num_workers: 1\ndataloader_prefetch_factor: 8\n",
    beyond_trainer="Axolotl accepts it; transformers' TrainingArguments raise a ValueError after the data is prepared.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A prefetch factor without data-loader workers.

    Batches are prefetched by worker processes. Writing `dataloader_prefetch_factor` turns Axolotl's own data-loader
    defaults off, workers included, so `dataloader_num_workers` is 0 unless it is written too. transformers refuses a
    prefetch factor without workers when the trainer is built, after tokenising.
    """
    factor = run.config.get(_PREFETCH)
    if factor is None or run.config.get(_WORKERS):
        return
    yield Hit(
        key=_PREFETCH,
        message=f"{_PREFETCH} {factor} with {_WORKERS} 0: transformers refuses to prefetch without a worker",
        fix=safe("Use one worker", insert_key(_WORKERS, 1, beside=_PREFETCH)),
    )
