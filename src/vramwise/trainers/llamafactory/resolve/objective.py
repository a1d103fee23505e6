"""Resolves stages beyond next tokens: pairs (dpo, rm), single judged rows (kto), and the reference.

Follows train/{dpo,kto,rm,ppo} and `create_ref_model` of 0.9.5.
"""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments

_OBJECTIVES = {"dpo": "dpo", "kto": "kto", "rm": "value"}
_WITHOUT_REFERENCE = ("orpo", "simpo")
_NOTHING_GENERATED = {
    "generation_rows": None,
    "completion_len": None,
    "rows_per_prompt": 1,
    "old_log_probs": False,
    "engine": "policy",
    "engine_share": 0.0,
    "engine_sleeps": False,
}


def resolve_preference(args: Arguments) -> None:
    """Fill rl, objective, reference… and log_probs. Needs the method and the dtypes."""
    stage = args.value("stage")
    rl = stage if stage in ("dpo", "kto", "ppo") else None
    args.derive("rl", rl, f"stage {stage}", key="stage")
    args.derive("objective", _OBJECTIVES.get(stage, "tokens"), f"stage {stage}", key="stage")
    _reference(args, stage)
    if rl in _OBJECTIVES:
        args.derive("log_probs", "whole", "the log-softmax of all logits, in fp32, is held")
    else:
        args.derive("log_probs", "fused", "none are made")
    args.derive("reference_precomputed", False, "LLaMA-Factory runs the reference model at every step")
    args.derive("chosen_cross_entropy", False, "pref_ftx reuses the log-probabilities")
    for name, value in _NOTHING_GENERATED.items():
        args.derive(name, value, "nothing is generated" if stage != "ppo" else "generation is not supported")


def _reference(args: Arguments, stage: str) -> None:
    """Fill the reference: a separate model if `ref_model` names one or no adapter can be switched off.

    orpo and simpo need none.
    """
    name, loss = "reference", args.value("pref_loss")
    own = args.value("ref_model")
    if stage not in ("dpo", "kto") or (stage == "dpo" and loss in _WITHOUT_REFERENCE):
        why = f"pref_loss {loss} needs none" if stage == "dpo" else "none is needed"
        args.derive(name, "none", why, key="pref_loss" if stage == "dpo" else None)
    elif own:
        args.derive(name, "model", "ref_model is loaded beside the policy", key="ref_model")
    elif args.value("finetuning_type") == "lora":
        args.derive(name, "adapter_off", "the policy with its adapter switched off", key="finetuning_type")
    else:
        args.derive(name, "model", "the base is loaded a second time", key="finetuning_type")
    args.derive("reference_dtype", args.values["weights_dtype"], "as loaded: the reference is not cast")
