"""polora-misused"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.optimizer_sharding import unsupported_sharding
from vramwise.types import RunSpec, Severity

_NEVER_TRAINED = (
    "lora_modules_to_save",
    "unfrozen_parameters",
    "peft_use_dora",
    "peft_trainable_token_indices",
    "lisa_step_interval",
    "reward_model",
    "process_reward_model",
)
_IGNORED_RATES = ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale")


@rule(
    id="polora-misused",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\nloraplus_lr_ratio: 16\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """PoLoRA with something that it cannot train or would ignore.

    The `polora` optimizer updates the two factors of LoRA adapters and nothing else. Without an adapter it has nothing
    to do; whole modules, new tokens or DoRA magnitudes would stay untrained; learning rates per group are not read; and
    it needs whole factors, so DeepSpeed, tensor parallelism and FSDP1 are out. Axolotl stops in each case. Weight decay
    is ignored.
    """
    if run.optimizer.name != "polora":
        return
    if run.adapter.kind not in ("lora", "qlora"):
        yield Hit(
            key="adapter",
            near=("optimizer",),
            message=(
                f"optimizer polora trains LoRA factors only, adapter is {run.adapter.kind or 'not set'}: Axolotl stops"
            ),
        )
    yield from unsupported_sharding(run, "polora needs whole factors (one GPU, DDP or FSDP2)")
    if run.sharding.tensor_parallel_size > 1:
        size = run.sharding.tensor_parallel_size
        yield Hit(
            key="tensor_parallel_size",
            message=f"optimizer polora with tensor_parallel_size {size}: it needs whole factors, Axolotl stops",
        )
    yield from _written(run)


def _written(run: RunSpec) -> Iterator[Hit]:
    for key in (*_NEVER_TRAINED, *_IGNORED_RATES, "relora_steps"):
        if not run.config.get(key):
            continue
        what = "adds parameters that polora never trains" if key in _NEVER_TRAINED else "is not read by polora"
        if key == "relora_steps":
            what = "resets a state that polora does not keep there"
        yield Hit(
            key=key,
            message=f"{key} {what}: Axolotl stops",
            fix=unsafe(f"Remove {key}", delete_key(key)),
        )
    decay = run.config.get("weight_decay")
    if decay:
        yield Hit(
            severity=Severity.WARNING,
            key="weight_decay",
            message=f"weight_decay {decay} has no effect: polora has no weight decay",
            fix=safe("Remove weight_decay, which is not read", delete_key("weight_decay")),
        )
