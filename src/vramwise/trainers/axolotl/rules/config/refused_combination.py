"""refused-combination"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vramwise.rules.base import Hit, delete_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.rules.config.newer_refusals import newer_refusals
from vramwise.types import RunSpec, Severity

# Both keys set: Axolotl refuses. The first is the one to blame.
_NOT_TOGETHER = (
    ("warmup_ratio", "warmup_steps", "both say how long the warm-up is"),
    ("loraplus_lr_ratio", "lr_groups", "both set learning rates by group of parameters"),
    ("include_tokens_per_second", "pretraining_dataset", "the tokens of a stream cannot be counted beforehand"),
    ("dataset_exact_deduplication", "pretraining_dataset", "a stream cannot be searched for duplicates"),
    ("dataset_exact_deduplication", "streaming", "a stream cannot be searched for duplicates"),
    ("dataset_exact_deduplication", "skip_prepare_dataset", "duplicates are dropped while data is prepared"),
    ("revision_of_model", "gptq", "a GPTQ checkpoint is loaded from the main branch only"),
)
# The first key set without the second: Axolotl refuses.
_NEEDS = (
    ("peft_layers_pattern", "peft_layers_to_transform", "it says where those layers are"),
    ("push_dataset_to_hub", "hf_use_auth_token", "pushing needs a login"),
)
_MISTRAL_COMMON = ("added_tokens_overrides", "special_tokens", "tokens", "chat_template", "processor_kwargs")


@rule(
    id="refused-combination",
    severity=Severity.ERROR,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 10\nwarmup_ratio: 0.1\n",
    good="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 10\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Keys that Axolotl refuses side by side, or one without the other.

    These have no say in memory, but each of them stops the run at the start: two lengths of the warm-up, deduplication
    of a stream, `peft_layers_pattern` without `peft_layers_to_transform`, options of one RL method under another, a
    tokenizer option that mistral-common does not take, and the like. The message says which two keys and why. Delete
    one of them, or write the one that is missing.
    """
    for key, other, why in _NOT_TOGETHER:
        if run.config.get(key) and run.config.get(other):
            message = f"{key} together with {other} is refused: {why}"
            yield Hit(key=key, message=message, fix=unsafe(f"Delete {key}", delete_key(key)))
    for key, other, why in _NEEDS:
        if run.config.get(key) and not run.config.get(other):
            yield Hit(key=key, message=f"{key} without {other} is refused: {why}")
    for key, message in (*_single_cases(run), *newer_refusals(run)):
        yield Hit(key=key, message=message)
    yield from _mistral_common(run)
    yield from _target_patterns(run)


def _single_cases(run: RunSpec) -> Iterator[tuple[str, str]]:
    config = run.config
    cases = (
        (
            run.objective.rl == "simpo" and config.get("warmup_ratio"),
            "warmup_ratio",
            "warmup_ratio with rl: simpo is refused: its trainer takes warmup_steps only",
        ),
        (
            run.objective.rl == "ebft" and not config.get("ebft"),
            "rl",
            "rl: ebft without an ebft section is refused: at least ebft.mode must be said",
        ),
        (
            run.objective.rl == "gdpo" and config.get("trl.multi_objective_aggregation") == "sum_then_normalize",
            "trl.multi_objective_aggregation",
            "multi_objective_aggregation sum_then_normalize with rl: gdpo is refused: that would be GRPO",
        ),
        (
            config.get("scaling_softmax") and run.kernels.attn_implementation != "flex_attention",
            "scaling_softmax",
            f"scaling_softmax under {run.kernels.attn_implementation} attention is refused: it needs flex_attention",
        ),
        (
            config.get("chat_template") == "jinja" and not config.get("chat_template_jinja"),
            "chat_template",
            "chat_template jinja without chat_template_jinja is refused: there is no template",
        ),
        (
            _at_most_zero(config.get("neftune_noise_alpha")) and not config.get("noisy_embedding_alpha"),
            "neftune_noise_alpha",
            f"neftune_noise_alpha {config.get('neftune_noise_alpha')} is refused: it must be above 0, or left out",
        ),
    )
    yield from ((key, message) for applies, key, message in cases if applies)
    yield from _dpo_losses(run)


def _at_most_zero(value: Any) -> bool:
    return value is not None and value <= 0


def _dpo_losses(run: RunSpec) -> Iterator[tuple[str, str]]:
    types, weights = run.config.get("dpo_loss_type"), run.config.get("dpo_loss_weights")
    if run.objective.rl == "dpo":
        if weights is not None and types is None:
            yield "dpo_loss_weights", "dpo_loss_weights without dpo_loss_type is refused: there is nothing to weigh"
        elif weights is not None and len(types) != len(weights):
            counts = f"{len(types)} dpo_loss_type ≠ {len(weights)} dpo_loss_weights"
            yield "dpo_loss_weights", f"{counts}: refused, each loss needs its weight"
        return
    for key, value in (("dpo_loss_type", types), ("dpo_loss_weights", weights)):
        if value is not None:
            yield (
                key,
                f"{key} with {f'rl: {run.objective.rl}' if run.objective.rl else 'no rl'} is refused: it belongs to "
                "rl: dpo",
            )


def _mistral_common(run: RunSpec) -> Iterator[Hit]:
    if not run.config.get("tokenizer_use_mistral_common"):
        return
    for key in _MISTRAL_COMMON:
        if run.config.get(key):
            yield Hit(key=key, message=f"{key} with tokenizer_use_mistral_common is refused: that tokenizer is fixed")


def _target_patterns(run: RunSpec) -> Iterator[Hit]:
    written = run.config.get("lora_target_modules")
    for index, pattern in enumerate(written if isinstance(written, list) else ()):
        try:
            re.compile(pattern)
        except re.error as error:
            message = f"lora_target_modules '{pattern}' is refused: no valid pattern ({error})"
            yield Hit(key=f"lora_target_modules.{index}", near=("lora_target_modules",), message=message)
