"""What TrainingArguments itself refuses: the checks of `__post_init__` in transformers 5.6 to 5.23.

Each refusal is a key to blame and a sentence. Values are as the dataclass holds them; those of a wrong type are left
out beforehand, and argument-type tells them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.limits import parse_json
from vramwise.rules.base import Hit
from vramwise.trainers.arguments.vocabulary import UNUSABLE, Vocabulary
from vramwise.types import RunSpec, Stack

_FSDP = frozenset({"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"})
_FSDP_MORE = frozenset({"offload", "auto_wrap"})
_IN_FSDP2 = frozenset({"full_shard", "shard_grad_op"}) | _FSDP_MORE
# Fields that may be a mapping in a text, and the keys of the one that is a dataclass of accelerate's.
_MAPPINGS = (
    *("accelerator_config", "fsdp_config", "deepspeed", "lr_scheduler_kwargs"),
    *("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
)
_ACCELERATOR = frozenset(
    {"split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking"}
    | {"gradient_accumulation_kwargs", "use_configured_state"}
)
_NEEDS_EVAL = ("reduce_lr_on_plateau", "greedy")


class Held:
    """The values of the dataclasses: what is written, else their defaults."""

    def __init__(self, run: RunSpec, words: Vocabulary) -> None:
        self.run = run
        self._words = words

    def __call__(self, key: str) -> Any:
        """Return the value of a key; its default if the written value cannot be used."""
        values = self.run.config.document.values
        found = self._words.held(key, values[key]) if key in values else UNUSABLE
        return self._words.default(key) if found is UNUSABLE else found

    def number(self, key: str) -> float:
        """Return a number, or 0 if the value is not one."""
        found = self(key)
        return float(found) if isinstance(found, int | float) else 0.0


def argument_refusals(has: Held) -> Iterator[Hit]:
    """Yield every refusal that applies to the values."""
    for found in (_steps, _best_model, _precision, _loading, _sharding, _mappings):
        yield from found(has)


def _steps(has: Held) -> Iterator[Hit]:
    for what in ("logging", "eval", "save"):
        key, steps = f"{what}_steps", has.number(f"{what}_steps")
        if has(f"{what}_strategy") == "steps" and steps > 1 and steps % 1:
            yield Hit(f"{key} {steps}: it must be a whole number if above 1", key)
    if has("logging_strategy") == "steps" and not has.number("logging_steps"):
        yield Hit("logging_steps 0 with logging_strategy steps", "logging_steps")
    if has("eval_strategy") == "steps" and not has.number("eval_steps") and has.number("logging_steps") <= 0:
        yield Hit("eval_strategy steps needs eval_steps, or logging_steps above 0", "eval_strategy")
    for key in ("warmup_steps", "warmup_ratio"):
        if has.number(key) < 0:
            yield Hit(f"{key} below 0", key)
    every = has("torch_empty_cache_steps")
    if every is not None and not (isinstance(every, int) and every > 0):
        yield Hit(f"torch_empty_cache_steps {every}: it must be a whole number above 0", "torch_empty_cache_steps")


def _best_model(has: Held) -> Iterator[Hit]:
    saves, evals = has("save_strategy"), has("eval_strategy")
    if has("lr_scheduler_type") in _NEEDS_EVAL and evals == "no":
        yield Hit(f"lr_scheduler_type {has('lr_scheduler_type')} needs an eval_strategy", "lr_scheduler_type")
    if not has("load_best_model_at_end") or saves == "best":
        return
    key = "load_best_model_at_end"
    if saves != evals:
        yield Hit(f"{key} with save_strategy {saves} and eval_strategy {evals}: they must be the same", key)
    elif evals == "steps":
        every = has.number("eval_steps") or has.number("logging_steps")
        mixed = (every < 1) != (has.number("save_steps") < 1)
        if every and (mixed or round(has.number("save_steps") * 1e6) % max(1, round(every * 1e6))):
            yield Hit(f"{key} with save_steps {has('save_steps')}: it must be a multiple of eval_steps {every:g}", key)


def _precision(has: Held) -> Iterator[Hit]:
    if has("fp16") and has("bf16"):
        yield Hit("fp16 and bf16 are both on: use only one", "fp16")
    if has("fp16_full_eval") and has("bf16_full_eval"):
        yield Hit("fp16_full_eval and bf16_full_eval are both on: use only one", "fp16_full_eval")


def _loading(has: Held) -> Iterator[Hit]:
    if has("dataloader_prefetch_factor") is not None and has.number("dataloader_num_workers") == 0:
        yield Hit("dataloader_prefetch_factor needs dataloader_num_workers above 0", "dataloader_prefetch_factor")


def _sharding(has: Held) -> Iterator[Hit]:
    """Check the options of `fsdp`; since transformers 5.16 it means FSDP 2 unless fsdp_config says otherwise."""
    written = has("fsdp")
    words = written.split() if isinstance(written, str) else written if isinstance(written, list) else []
    strange = [word for word in words if not isinstance(word, str) or word not in _FSDP | _FSDP_MORE]
    if strange:
        yield Hit(f"unknown fsdp option '{strange[0]}'", "fsdp")
    elif fsdp2_by_default(has.run.target.stack):
        only_first = [word for word in words if word not in _IN_FSDP2]
        if only_first and _fsdp_version(has("fsdp_config")) != 1:
            yield Hit(
                f"fsdp {only_first[0]} belongs to FSDP 1, but FSDP 2 is used unless fsdp_config.version is 1", "fsdp"
            )
    elif words == ["offload"]:
        yield Hit("fsdp offload needs full_shard or shard_grad_op", "fsdp")
    elif {"full_shard", "shard_grad_op"} <= set(words):
        yield Hit("fsdp full_shard and shard_grad_op are both set: use only one", "fsdp")


def fsdp2_by_default(stack: Stack) -> bool:
    """Return whether `fsdp` means FSDP 2 if no version is given."""
    return stack.parts("transformers") >= (5, 16)


def _fsdp_version(block: Any) -> int:
    block = block if isinstance(block, Mapping) else {}
    found = block.get("version", block.get("fsdp_version", 2))
    return 1 if str(found) == "1" else 2


def _mappings(has: Held) -> Iterator[Hit]:
    for key in _MAPPINGS:
        value = has(key)
        if isinstance(value, str) and value.startswith("{"):
            try:
                parse_json(value)
            except ValueError:
                yield Hit(f"{key} is text that is not a valid JSON mapping", key)
    block = has("accelerator_config")
    strange = sorted(set(map(str, block)) - _ACCELERATOR) if isinstance(block, Mapping) else []
    if strange:
        yield Hit(f"accelerator_config has the unknown key '{strange[0]}'", "accelerator_config")
