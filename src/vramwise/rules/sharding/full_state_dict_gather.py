"""full-state-dict-gather"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes


@rule(
    id="full-state-dict-gather",
    explains={"save-gather"},
    severity=Severity.INFO,
    topic="sharding",
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n",
    options="--gpus 2",
    beyond_trainer="The trainer accepts both types; FULL_STATE_DICT gathers the model for every checkpoint.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Every FSDP checkpoint gathers the whole model.

    `state_dict_type: FULL_STATE_DICT` collects all shards into the host memory of rank 0 each time a checkpoint is
    written: the memory and the pause grow with the whole model, not with one rank's share. SHARDED_STATE_DICT lets
    each rank write its own part; the trainer merges them at the end, on the CPU. `final_state_dict_type:
    FULL_STATE_DICT` gathers once, for the final model. Adapters are small, so they are not reported.
    """
    if run.adapter.kind or not run.sharding.kind.startswith("fsdp") or not run.sharding.gathers_checkpoints:
        return
    yield Hit(
        field="gathers_checkpoints",
        message="state_dict_type FULL_STATE_DICT gathers the whole model in rank 0's host memory for every checkpoint",
        change=changes.shard_checkpoints(run),
    )
