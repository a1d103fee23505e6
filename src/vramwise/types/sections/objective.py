"""The training objective: next tokens, preferences or rewards; the reference model; generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`rl` is the trainer's own name for the method, `kind` the kind of loss."""

    neutral_why: ClassVar[str] = "supervised: next tokens, nothing is generated"

    rl: str | None = field(metadata=setting(None, compared=False))
    # "value": rewards from a head with one output, beside the vocabulary's head; "classes": a label for each row;
    # "token_classes": a label for each token
    kind: Literal[
        "tokens", "dpo", "kto", "orpo", "cpo", "reward", "value", "process_reward", "grpo", "classes", "token_classes"
    ] = field(metadata=setting("tokens", flat="objective"))
    class_labels: int = field(metadata=setting(0, rare=True))  # of a head for classes; 0: it has none
    # rows of a decoder that attends to an encoder; None: as long as the encoder's
    target_len: int | None = field(metadata=setting(None, rare=True))
    reference: Literal["none", "model", "adapter_off", "adapter_copy"] = field(metadata=setting("none"))
    reference_dtype: Literal["bf16", "fp16", "fp32"] = field(metadata=setting("bf16"))
    # the reference's log-probabilities are computed before the first step
    reference_precomputed: bool = field(metadata=setting(False))
    # FSDP 2 wraps the reference as one unit and gathers all of it at once
    reference_whole: bool = field(metadata=setting(False, rare=True))
    # a second model is loaded that the trainer does not use
    spare_model: bool = field(metadata=setting(False, rare=True))
    # How log-probabilities are computed from logits; "whole": by a log-softmax over all of them
    log_probs: Literal["copied", "fused", "selected", "chunked", "tiled", "whole"] = field(metadata=setting("fused"))
    # the chosen rows of pairs also get a cross-entropy loss
    chosen_cross_entropy: bool = field(metadata=setting(False))
    empties_cache_each_step: bool = field(metadata=setting(False, rare=True))
    # Generation: rows generated at once and the length of completions; None: no generation
    generation_rows: int | None = field(metadata=setting(None, compared=False))
    completion_len: int | None = field(metadata=setting(None, compared=False))
    rows_per_prompt: int = field(metadata=setting(1))
    # a pass for the policy's own log-probabilities before the update
    old_log_probs: bool = field(metadata=setting(False))
    # who generates; "beside": an engine on the same card
    engine: Literal["policy", "beside", "elsewhere"] = field(metadata=setting("policy"))
    # share of the card's memory
    engine_share: float = field(metadata=setting(0.0, phrase="an inference engine on the same card"))
    engine_sleeps: bool = field(metadata=setting(False))  # the engine frees its memory while the policy is trained
