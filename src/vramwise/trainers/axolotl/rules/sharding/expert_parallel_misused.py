"""expert-parallel-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import loaded_plugins
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.trainers.axolotl.spell.edits import written_key
from vramwise.types import RunSpec, Severity

_KEY = "expert_parallel_size"
_PLUGIN = "axolotl.integrations.expert_parallel.ExpertParallelPlugin"
_WANTED = "FULL_STATE_DICT"
# Their state would come back unquantised from a checkpoint of sharded experts.
_OPTIMIZERS = ("adamw_torch_4bit", "ao_adamw_4bit", "ao_adamw_fp8")
_OFFLOADERS = (True, "legacy", "disk")


@rule(
    id="expert-parallel-misused",
    severity=Severity.ERROR,
    topic="sharding",
    bad=(
        "base_model: Qwen/Qwen3-30B-A3B\nexpert_parallel_size: 2\n"
        "fsdp_config:\n  reshard_after_forward: true\n  state_dict_type: SHARDED_STATE_DICT\n"
    ),
    good=(
        "base_model: Qwen/Qwen3-30B-A3B\nexpert_parallel_size: 2\n"
        "fsdp_config:\n  reshard_after_forward: true\n  state_dict_type: FULL_STATE_DICT\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Experts are spread over GPUs in a way that cannot be trained or saved.

    With `expert_parallel_size` above 1 each GPU holds some of the experts. Since 0.20 Axolotl stops unless FSDP2 shards
    the rest (`fsdp_config`), checkpoints are gathered whole (`state_dict_type: FULL_STATE_DICT`: sharded ones would
    keep the experts of one group only), the optimizer keeps its state in 8 bits or more, and tensor parallelism is off.
    With `expert_parallel_backend: torch` checkpointing has to be non-reentrant and without an offloader that replaces
    it.
    """
    size, schema = run.config.get(_KEY), schema_of(run)
    if not schema.since("0.20.0") or not isinstance(size, int) or size <= 1 or _PLUGIN not in loaded_plugins(run):
        return
    if not run.config.get("fsdp_config"):
        yield Hit(key=_KEY, message=f"{_KEY} {size} needs FSDP2, and there is no fsdp_config: Axolotl stops")
    else:
        yield from _state_dict(run, size)
    if run.optimizer.name in _OPTIMIZERS:
        yield Hit(
            key="optimizer",
            message=f"optimizer {run.optimizer.name} with {_KEY} {size}: its state cannot be saved, Axolotl stops",
            fix=unsafe("Use adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit")),
        )
    if run.sharding.tensor_parallel_size > 1:
        tensor = f"tensor_parallel_size {run.sharding.tensor_parallel_size}"
        yield Hit(key=_KEY, message=f"{_KEY} {size} with {tensor}: Axolotl takes one of them and stops")
    if run.config.get("expert_parallel_backend") == "torch" and run.savings.gradient_checkpointing:
        yield from _checkpointing(run)


def _state_dict(run: RunSpec, size: int) -> Iterator[Hit]:
    for name in ("state_dict_type", "final_state_dict_type"):
        key = f"fsdp_config.{name}"
        value = run.config.get(key)
        if value == _WANTED or (value is None and name != "state_dict_type"):
            continue
        found = f"is {value}" if value else "is not set, which means SHARDED_STATE_DICT"
        first = f"fsdp_config.{next(iter(run.config.get('fsdp_config')))}"
        edit = insert_key(written_key(run, key), _WANTED, beside=written_key(run, first))
        yield Hit(
            key=key,
            message=f"{_KEY} {size} needs {key} {_WANTED}, it {found}: checkpoints would lose experts, Axolotl stops",
            fix=unsafe("Gather whole checkpoints", edit),
        )


def _checkpointing(run: RunSpec) -> Iterator[Hit]:
    backend = "expert_parallel_backend: torch"
    if run.config.get("gradient_checkpointing_kwargs.use_reentrant"):
        key = "gradient_checkpointing_kwargs.use_reentrant"
        message = f"{backend} needs non-reentrant checkpointing, use_reentrant is true: Axolotl stops"
        yield Hit(key=key, message=message, fix=unsafe("Checkpoint non-reentrantly", set_key(key, False)))
    mode = run.config.get("activation_offloading")
    if mode in _OFFLOADERS:
        written = str(mode).lower()
        message = f"{backend} with activation_offloading: {written}, which replaces the checkpointing: Axolotl stops"
        yield Hit(key="activation_offloading", message=message)
