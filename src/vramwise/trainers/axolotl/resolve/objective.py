"""Resolves preference and reward training as Axolotl passes it to TRL: the reference, log-probabilities, generation."""

from __future__ import annotations

from typing import Any

from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.fields import Fields
from vramwise.types import Target

_OBJECTIVES = {
    "dpo": "dpo",
    "ipo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "simpo": "cpo",
    "grpo": "grpo",
    "gdpo": "grpo",
}
# TRL's own defaults, and vLLM's default share of the card in the same process.
_COMPLETION, _GENERATIONS = 256, 8
_ENGINE_SHARE = {"0.21.0": 0.3, "0.5.0": 0.9}
_NO_ENGINE: dict[str, Any] = {"engine": "policy", "engine_share": 0.0, "engine_sleeps": False}


def resolve_preference(fields: Fields, target: Target) -> None:
    """Fill objective, reference…, log_probs and empties_cache_each_step. Needs the method, dtypes and batch."""
    schema = schema_in(target.stack)
    objective = _objective(fields)
    _reference(fields, objective)
    older = not schema.since("0.21.0")
    liger = next((key for key in ("dpo_use_liger_kernel", "trl.use_liger_loss") if fields.config.get(key)), None)
    if liger is not None:
        fields.derive("log_probs", "chunked", f"{liger}: from hidden states, without logits", key=liger)
    elif older and fields.values["rl"]:
        fields.derive(
            "log_probs", "copied", f"Axolotl {schema.short} puts its own kernel in TRL: rows are joined first"
        )
    else:
        fields.derive("log_probs", "fused", "TRL's kernel takes the logits as they are")
    empties = older and objective == "dpo"
    why = "Axolotl's DPO trainer empties the cache after every micro-step" if empties else "nobody empties it"
    fields.derive("empties_cache_each_step", empties, why)
    fields.neutral("class_labels", "target_len")
    _cross_entropy(fields, objective)
    _generation(fields, schema, objective)


def _objective(fields: Fields) -> str:
    config = fields.config
    for key, name in (("reward_model", "reward"), ("process_reward_model", "process_reward")):
        if config.get(key):
            return str(fields.derive("objective", name, f"{key} is on", key=key))
    rl = fields.values["rl"]
    found = _OBJECTIVES.get(str(rl), "tokens")
    return str(fields.derive("objective", found, f"rl: {rl}" if rl else "next tokens", key="rl" if rl else None))


def _cross_entropy(fields: Fields, objective: str) -> None:
    """Fill chosen_cross_entropy: ORPO always, SimPO unless cpo_alpha is 0, DPO if `sft` is among its losses."""
    config, key = fields.config, "dpo_loss_type" if objective == "dpo" else "cpo_alpha"
    losses = config.get("dpo_loss_type") or ()
    by_objective = {
        "orpo": True,
        "cpo": config.get("cpo_alpha") != 0,
        "dpo": fields.values["rl"] == "dpo" and "sft" in ((losses,) if isinstance(losses, str) else losses),
    }
    on = bool(by_objective.get(objective, False))
    why = "a part of the loss" if on else "no part of the loss"
    fields.derive("chosen_cross_entropy", on, why, key=key)


def _reference(fields: Fields, objective: str) -> None:
    """Fill the reference.

    Axolotl loads a second model unless an adapter is trained (never for ORPO); only DPO uses it.
    """
    config, values = fields.config, fields.values
    adapter, weights = values["adapter"], values["weights_dtype"]
    loads = bool(values["rl"]) and values["rl"] != "orpo" and (not adapter or bool(config.get("rl_adapter_ref_model")))
    spare = loads and objective in ("kto", "cpo", "grpo")
    why = "Axolotl loads a second model that TRL does not take" if spare else "no unneeded model is loaded"
    fields.derive("spare_model", spare, why)
    kind, dtype, why = _kind(fields, objective, loads)
    fields.derive("reference", kind, why, key="rl" if values["rl"] else None)
    fields.derive("reference_dtype", dtype or weights, "TRL's default" if dtype else "as the policy's weights")
    fields.derive("reference_whole", kind == "model", "TRL's `prepare_fsdp` names no blocks")
    before = objective == "dpo" and bool(config.get("precompute_ref_log_probs"))
    key = "precompute_ref_log_probs"
    fields.derive("reference_precomputed", before, f"{key} is {'on' if before else 'off'}", key=key)


def _kind(fields: Fields, objective: str, loads: bool) -> tuple[str, str | None, str]:
    """Return the kind of reference, its dtype if that is not the policy's, and the reason."""
    adapter = fields.values["adapter"]
    if objective == "dpo":
        if loads:
            return "model", None, "loaded a second time, as the policy is"
        return "adapter_off", None, "the policy with its adapter switched off"
    if objective == "kto":
        if adapter:
            return "adapter_off", None, "the policy with its adapter switched off"
        return "model", "fp32", "TRL loads its own, in fp32"
    if objective == "grpo" and _beta(fields) != 0:
        if adapter:
            return "adapter_copy", None, "TRL adds a frozen copy of the adapter"
        return "model", "fp32", "TRL loads its own, in fp32"
    return "none", None, "none is needed"


def _beta(fields: Fields) -> float:
    beta: Any = fields.config.get("trl.beta", fields.config.get("rl_beta", 0.0))
    return float(beta) if isinstance(beta, int | float) else 0.0


def _generation(fields: Fields, schema: Schema, objective: str) -> None:
    config, values = fields.config, fields.values
    if objective != "grpo":
        nothing = {"generation_rows": None, "completion_len": None, "rows_per_prompt": 1, "old_log_probs": False}
        for name, value in (nothing | _NO_ENGINE).items():
            fields.derive(name, value, "nothing is generated")
        return
    micro, each, ranks = (values[name] for name in ("micro_batch_size", "gradient_accumulation_steps", "data_parallel"))
    fields.at_least_one("completion_len", _COMPLETION, key="trl.max_completion_length", why="TRL's default")
    fields.at_least_one("rows_per_prompt", _GENERATIONS, key="trl.num_generations", why="TRL's default")
    written = config.get("trl.generation_batch_size")
    rows = max(micro, written // ranks) if isinstance(written, int) and written > 0 else micro * each
    why = "trl.generation_batch_size over the ranks" if written else f"micro {micro} × accumulation {each}"
    fields.derive("generation_rows", rows, why, key="trl.generation_batch_size" if written else None)
    _engine(fields, schema)
    turns = max(1, rows // micro) * max(1, int(config.get("trl.num_iterations") or 1))
    old = each % turns != 0 or values["engine"] != "policy"
    fields.derive(
        "old_log_probs", old, "samples may be older than the policy" if old else "samples are the policy's own"
    )


def _engine(fields: Fields, schema: Schema) -> None:
    config = fields.config
    if not config.get("trl.use_vllm"):
        for name, value in _NO_ENGINE.items():
            fields.derive(name, value, "the policy generates by itself", key="trl.use_vllm")
        return
    # TRL's default mode; Axolotl's server is the other one.
    beside = config.get("trl.vllm_mode", "colocate") == "colocate"
    why = "vLLM shares the card" if beside else "vLLM runs as a server"
    fields.derive("engine", "beside" if beside else "elsewhere", why, key="trl.vllm_mode")
    if not beside:
        fields.derive("engine_share", 0.0, why)
        fields.derive("engine_sleeps", False, why)
        return
    usual = next(share for since, share in _ENGINE_SHARE.items() if schema.since(since))
    if "trl.vllm_mode" not in config:
        usual = _ENGINE_SHARE["0.21.0"]  # Axolotl passes its own value on only with the mode
    share = fields.take("engine_share", usual, key="vllm.gpu_memory_utilization", why=f"Axolotl {schema.short}")
    fields.values["engine_share"] = min(1.0, max(0.0, float(share)))
    fields.take("engine_sleeps", False, key="trl.vllm_enable_sleep_mode", why="TRL's default")
