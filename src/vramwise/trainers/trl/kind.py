"""Determines the kind of training of a file, which only TRL's command says: by its keys, then by its words.

A key that only one kind has decides. If several have it, the words of the file decide: comments, its output folder, its
own path. Default: supervised fine-tuning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vramwise.types import Document, RunSpec

# The most specific first, including keys that TRL has removed.
_BY_KEY: tuple[tuple[str, frozenset[str]], ...] = (
    ("distillation", frozenset({"teacher_model_name_or_path", "teacher_model_init_kwargs"})),
    ("rloo", frozenset({"normalize_advantages", "reward_clip_range"})),
    (
        "grpo",
        frozenset({"reward_funcs", "num_generations", "max_completion_length", "scale_rewards", "epsilon_high"})
        | frozenset({"reward_weights", "use_vllm", "vllm_mode", "num_iterations", "steps_per_generation"}),
    ),
    ("kto", frozenset({"desirable_weight", "undesirable_weight"})),
    ("cpo", frozenset({"cpo_alpha", "simpo_gamma"})),
    ("reward", frozenset({"center_rewards_coefficient"})),
    (
        "dpo",
        frozenset({"precompute_ref_log_probs", "ld_alpha", "f_divergence_type", "loss_weights", "use_weighting"})
        | frozenset({"rpo_alpha", "discopop_tau", "sync_ref_model", "label_smoothing"}),
    ),
    (
        "sft",
        frozenset({"packing", "packing_strategy", "eval_packing", "completion_only_loss", "assistant_only_loss"})
        | frozenset({"dataset_text_field", "dataset_kwargs", "max_seq_length", "eos_token"}),
    ),
)
# Keys that several kinds of preference training have, but not supervised training.
_PREFERENCE = frozenset({"beta", "max_prompt_length", "precompute_ref_log_probs", "label_smoothing"})
# Losses that only one kind has; any other belongs to preference training.
_LOSSES = {"sft": ("nll", "dft", "chunked_nll"), "kto": ("kto", "apo_zero_unpaired")}
_NAMES = ("orpo", "kto", "grpo", "rloo", "cpo", "dpo", "reward", "distillation", "sft")
# A kind appears as a separate word: "# DPOTrainer arguments", data/zephyr-7b-dpo-full, recipes/dpo/config.yaml.
_WORD = re.compile(rf"(?<![a-z])({'|'.join(_NAMES)})(?=trainer|config|[^a-z]|$)", re.IGNORECASE)
_SAID_IN = ("output_dir", "hub_model_id", "run_name")
_OTHERS = {"grpo": ("rloo",), "dpo": ("orpo", "kto", "cpo")}
_LONGEST_TEXT = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of training, and how it is known."""

    name: str
    why: str
    key: str | None = None
    assumed: bool = False


def kind_of(document: Document, insisted: str | None = None) -> Kind:
    """Return the kind of training of a file; `insisted` is the kind that the user chose."""
    if insisted is not None:
        return Kind(name=insisted, why=f"--trainer trl:{insisted}")
    values = document.values
    said = _said(document)
    preference = sorted(key for key in _PREFERENCE & values.keys())
    for name, keys in _BY_KEY:
        written = sorted(key for key in keys & values.keys())
        if written and not (name == "sft" and preference):
            other = next((one for one in _OTHERS.get(name, ()) if one in said), None)
            why = f"{written[0]} is a key of {name}" if other is None else f"the file calls itself {other}"
            return Kind(name=other or name, why=why, key=written[0])
    if values.get("lora_task_type") == "SEQ_CLS":
        return Kind(name="reward", why="lora_task_type SEQ_CLS is for reward models", key="lora_task_type")
    by_loss = _of_loss(values.get("loss_type"))
    if by_loss in _LOSSES and not preference:
        return Kind(name=by_loss, why=f"loss_type {values['loss_type']} is one of {by_loss}", key="loss_type")
    preference += ["loss_type"] if by_loss else []
    for name in said:
        if not preference or name != "sft":
            return Kind(name=name, why=f"the file calls itself {name}", assumed=True)
    if preference:
        return Kind(name="dpo", why=f"{preference[0]} is a key of preference training", key=preference[0], assumed=True)
    return Kind(name="sft", why="the default", assumed=True)


def _of_loss(written: Any) -> str | None:
    """Return the kind that a loss belongs to, "dpo" if no other kind has it; None if none is written."""
    if not isinstance(written, str | list) or not written:
        return None
    first = written if isinstance(written, str) else str(written[0])
    return next((name for name, losses in _LOSSES.items() if first in losses), "dpo")


def kind_name(run: RunSpec) -> str:
    """Return the kind of training of a resolved run."""
    return run.objective.rl or ("reward" if run.objective.kind == "reward" else "sft")


def _said(document: Document) -> list[str]:
    """Return the kinds that the file mentions: in comments, in its output folder, in its path; in order."""
    texts = [_comments(document.text), *(_text(document.values, key) for key in _SAID_IN), document.path]
    found = [match[1].lower() for text in texts for match in _WORD.finditer(text)]
    return list(dict.fromkeys(found))


def _comments(text: str) -> str:
    lines = text[:_LONGEST_TEXT].splitlines()
    return "\n".join(line for line in lines if line.lstrip().startswith("#"))


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""
