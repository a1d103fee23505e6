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
# Their state would be loaded unquantised from a checkpoint of sharded experts.
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
    """Expert parallelism with settings that Axolotl cannot train or save.

    With `expert_parallel_size` above 1 each GPU holds some of the experts. Since 0.20 Axolotl has these requirements
    and stops otherwise. FSDP2 must shard the rest (`fsdp_config`). Checkpoints must be gathered whole
    (`state_dict_type: FULL_STATE_DICT`), because sharded ones would keep only the experts of one group. The optimizer
    must keep its state in 8 bits or more, and tensor parallelism must be off. With `expert_parallel_backend: torch`
    checkpointing must be non-reentrant, without an offloader that replaces it.
    """
    size, schema = run.config.get(_KEY), schema_of(run)
    if not schema.since("0.20.0") or not isinstance(size, int) or size <= 1 or _PLUGIN not in loaded_plugins(run):
        return
    if not run.config.get("fsdp_config"):
        yield Hit(key=_KEY, message=f"Axolotl refuses {_KEY} {size} without fsdp_config: it needs FSDP2")
    else:
        yield from _state_dict(run, size)
    if run.optimizer.name in _OPTIMIZERS:
        yield Hit(
            key="optimizer",
            message=f"Axolotl refuses optimizer {run.optimizer.name} with {_KEY} {size}: its state cannot be saved",
            fix=unsafe("Use adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit")),
        )
    if run.sharding.tensor_parallel_size > 1:
        tensor = f"tensor_parallel_size {run.sharding.tensor_parallel_size}"
        yield Hit(key=_KEY, message=f"Axolotl refuses {_KEY} {size} together with {tensor}")
    if run.config.get("expert_parallel_backend") == "torch" and run.savings.gradient_checkpointing:
        yield from _checkpointing(run)


def _state_dict(run: RunSpec, size: int) -> Iterator[Hit]:
    for name in ("state_dict_type", "final_state_dict_type"):
        key = f"fsdp_config.{name}"
        value = run.config.get(key)
        if value == _WANTED or (value is None and name != "state_dict_type"):
            continue
        found = value or "SHARDED_STATE_DICT (the default)"
        first = f"fsdp_config.{next(iter(run.config.get('fsdp_config')))}"
        edit = insert_key(written_key(run, key), _WANTED, beside=written_key(run, first))
        yield Hit(
            key=key,
            message=f"Axolotl refuses {_KEY} {size} with {key} {found}: checkpoints would lose experts",
            fix=unsafe(f"Gather whole checkpoints: {_WANTED}", edit),
        )


def _checkpointing(run: RunSpec) -> Iterator[Hit]:
    backend = "expert_parallel_backend: torch"
    if run.config.get("gradient_checkpointing_kwargs.use_reentrant"):
        key = "gradient_checkpointing_kwargs.use_reentrant"
        message = f"Axolotl refuses {backend} with use_reentrant: true: it needs non-reentrant checkpointing"
        yield Hit(key=key, message=message, fix=unsafe("Set use_reentrant: false", set_key(key, False)))
    mode = run.config.get("activation_offloading")
    if mode in _OFFLOADERS:
        written = str(mode).lower()
        message = f"Axolotl refuses {backend} with activation_offloading: {written}, which replaces checkpointing"
        yield Hit(key="activation_offloading", message=message)
