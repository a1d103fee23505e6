"""Cases that run types without a family on a card, with what their traces predict beforehand.

Random weights, a few layers, real orders of size. Families that no recorded run had are among them, predicted both
from their traces and as written by hand. Needs torch (a CPU build is enough) and the transformers of the card:

    python bench/traced_cases.py OUT               # writes OUT/cases.jsonl and OUT/predicted.jsonl
    python bench/measure.py OUT/cases.jsonl OUT --jobs 3
    python bench/traced_cases.py OUT --compare     # prints the table, from OUT/predicted.jsonl and OUT/NAME.json

`predicted.jsonl` is to be written, and kept, before the runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "measured"), str(HERE.parent / "src")]

from accuracy import predict  # noqa: E402
from family_cases import _SIZES, MODELS  # noqa: E402
from traced import SINCE_5_20, peaks, traced  # noqa: E402
from truth import Case, _case  # noqa: E402

_SHARED = {"sequence_len": 1024, "micro_batch_size": 2, "steps": 3, "alloc_conf": "expandable_segments:True"}
_CHECKPOINTED = {"gradient_checkpointing": True}
_LORA = {"adapter": "lora", "lora_r": 16}
_WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "full_gc": _CHECKPOINTED,
    "lora": _LORA,
    "lora_gc": {**_LORA, **_CHECKPOINTED},
    "eager": {"attn_implementation": "eager"},
    "lora_eager": {**_LORA, "attn_implementation": "eager"},
    "qdora": {**_LORA, "load_in_4bit": True, "peft_use_dora": True},
}
_EXPERTS = {"num_experts_per_tok": 4, "moe_intermediate_size": 512}

UNKNOWN: dict[str, dict[str, Any]] = {
    "helium": {"head_dim": 64},
    "youtu": {"num_key_value_heads": 16, "q_lora_rank": 512, "kv_lora_rank": 256, "qk_rope_head_dim": 64,
              "qk_nope_head_dim": 128, "v_head_dim": 128},
    "ernie4_5_moe": {"moe_num_experts": 16, "moe_k": 4, "moe_intermediate_size": 512, "moe_num_shared_experts": 1},
    "vaultgemma": {"head_dim": 128, "query_pre_attn_scalar": 128},
    "opt": {"ffn_dim": 4096, "word_embed_proj_dim": 1024},
    "solar_open": {**_EXPERTS, "n_routed_experts": 16, "n_shared_experts": 1, "head_dim": 64},
    "granitemoe": {"num_local_experts": 16, "num_experts_per_tok": 4, "intermediate_size": 512},
    "flex_olmo": {"num_experts": 8, "num_experts_per_tok": 2},
    "minimax_m2": {"num_local_experts": 16, "num_experts_per_tok": 4, "intermediate_size": 512, "head_dim": 64},
}  # fmt: skip
# the third set: with transformers 5.23
_LATENT = {"num_key_value_heads": 16, "q_lora_rank": 384, "kv_lora_rank": 256, "qk_rope_head_dim": 32,
           "qk_nope_head_dim": 64, "v_head_dim": 64}  # fmt: skip
_SWA = ["sliding_attention", "sliding_attention", "full_attention"] * 2
_EAGER = ("granite_swa", "gptj", "mimo_v2_flash")  # which do not take sdpa
_SPARSE = {"mlp_layer_types": ["dense"] + ["sparse"] * 5}
NEWER: dict[str, dict[str, Any]] = {
    "jais2": {"head_dim": 64},
    "minicpm3": _LATENT,
    "lfm3": {"head_dim": 64, "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "sliding_attention"],
             "sliding_window": 512},
    "granite_swa": {"layer_types": _SWA, "layer_rope_theta": [10000.0] * 6, "sliding_window": 512},
    "diffllama": {"head_dim": 64},
    "gptj": {"n_embd": 1024, "n_layer": 6, "n_head": 16, "n_positions": 4096, "rotary_dim": 64},
    "hy_v3": {**_EXPERTS, **_SPARSE, "num_experts": 16, "num_shared_experts": 1, "head_dim": 64},
    "exaone_moe": {**_EXPERTS, **_SPARSE, "num_experts": 16, "num_shared_experts": 1, "head_dim": 64,
                   "layer_types": _SWA, "sliding_window": 512, "first_k_dense_replace": 1},
    "mellum": {**_EXPERTS, "num_local_experts": 16, "head_dim": 64, "layer_types": _SWA, "sliding_window": 512,
               "mlp_layer_types": ["sparse"] * 6},
    "youtu": UNKNOWN["youtu"],
    "mimo_v2_flash": {**_EXPERTS, "n_routed_experts": 16, "head_dim": 64, "v_head_dim": 64},
}  # fmt: skip
# the fourth set: types that no earlier run had
_PARTS = {**_EXPERTS, "num_experts": 16, "head_dim": 64}
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
NEWEST: dict[str, dict[str, Any]] = {
    "dots1": {**_EXPERTS, "n_routed_experts": 16, "n_shared_experts": 1, "head_dim": 64, "first_k_dense_replace": 1,
              "sliding_window": 512, "layer_types": _SWA},
    "axk1": {**_EXPERTS, **_LATENT, "n_routed_experts": 16, "n_shared_experts": 1},
    "kolibri1": {**_PARTS, "sliding_window": 512},
    "laguna": _PARTS,
    "cohere2_moe": {**_PARTS, "intermediate_size": 512},
    "cohere_compass_text": {"sliding_window": 512, "layer_types": _SWA,
                            "rope_parameters": {"full_attention": _ROTARY, "sliding_attention": _ROTARY}},
    "beam": {**_PARTS, "n_group": 4, "topk_group": 2},
    "inkling_text": {**_EXPERTS, "n_routed_experts": 16, "n_shared_experts": 1, "head_dim": 64, "swa_head_dim": 64,
                     "swa_num_attention_heads": 16, "swa_num_key_value_heads": 4},
    "bamba": {"mamba_n_heads": 32, "mamba_d_head": 64, "mamba_d_state": 128, "attn_layer_indices": [2, 5]},
    "doge": {},
    "internlm3": {"head_dim": 64},
}  # fmt: skip
# families written by hand that no recorded run had
UNSEEN = ("afmoe", "gemma4", "gemma3n", "deepseek_v3", "granite_hybrid", "lfm2", "kimi_linear")
UNSEEN_STATE_SPACES = ("nemotron_h", "falcon_h1")  # PEFT refuses to adapt all of their layers


_PLANS: dict[str, tuple[tuple[tuple[str, ...], dict[str, dict[str, Any]]], ...]] = {
    "second": (
        (("full", "lora_gc"), UNKNOWN),
        (("full_gc",), UNKNOWN),
        (("full", "lora_gc"), {name: MODELS[name] for name in UNSEEN}),
        (("full", "full_gc"), {name: MODELS[name] for name in UNSEEN_STATE_SPACES}),
        (("lora",), UNKNOWN),
    ),
    "third": (
        (("full", "lora_gc"), NEWER),
        (("full", "lora_gc"), {name: MODELS[name] for name in UNSEEN}),
        (("qdora",), {"helium": UNKNOWN["helium"], "jais2": NEWER["jais2"], "vaultgemma": UNKNOWN["vaultgemma"]}),
        (("full", "full_gc"), {name: MODELS[name] for name in UNSEEN_STATE_SPACES}),
        (("full_gc", "lora"), NEWER),
    ),
    # families that tracing could not judge, new types, and what was left of the third set
    "fourth": (
        (("full", "lora_gc"), {name: MODELS[name] for name in ("gemma4", "gemma3n")}),
        (("lora_gc",), {"kimi_linear": MODELS["kimi_linear"]}),
        (("full",), NEWEST),
        (("qdora",), {"helium": UNKNOWN["helium"], "jais2": NEWER["jais2"], "minicpm3": NEWER["minicpm3"]}),
        (("lora_gc",), NEWEST),
        (("eager", "lora_eager"), {name: NEWER[name] for name in _EAGER}),
        (("full", "lora_gc"), {name: MODELS[name] for name in ("gemma4_moe", "deepseek_v3", "granite_hybrid", "lfm2")}),
        (("full",), {name: MODELS[name] for name in (*UNSEEN_STATE_SPACES, "kimi_linear", "lfm2_moe", "jamba")}),
        (("full", "lora_gc"), {name: MODELS[name] for name in ("qwen3_5", "qwen3_next")}),
        (("full_gc", "lora"), {name: one for name, one in NEWER.items() if name not in _EAGER}),
    ),
}


def all_cases(plan: str) -> list[dict[str, Any]]:
    """Every case of a set in the form that `measure.py` reads, the most telling first."""
    found = []
    for ways, models in _PLANS[plan]:
        for name, model in models.items():
            fields = {**_SIZES, "model_type": name, **model}
            if fields["model_type"] == "nemotron_h":
                del fields["num_hidden_layers"]
            found += [{"name": f"{name}_{way}", "model": fields, **_SHARED, **_WAYS[way]} for way in ways]
    return found


def _as_run(case: dict[str, Any], *, hand: bool) -> Case:
    """A case on the releases of the card. Types without a family are filled in by their trace."""
    model = case["model"] if hand else {**_SIZES, "model_type": "llama"}
    found = _case({"name": case["name"], "case": {**case, "model": model}}, HERE)
    return replace(found, run=found.run.changed(**SINCE_5_20))


def predicted(case: dict[str, Any]) -> dict[str, Any]:
    """What is predicted of a case, in MiB; why not, where it cannot be traced."""
    row: dict[str, Any] = {"name": case["name"]}
    try:
        plain = _as_run(case, hand=False)
        model, timeline = traced(plain, case["model"])
        row["traced"] = peaks(replace(plain, model=model), timeline)
    except Exception as error:
        row["why"] = f"{type(error).__name__}: {error}"[:300]
    if any(case["name"].startswith(f"{name}_") for name in (*MODELS, "gptj")):
        hand = _as_run(case, hand=True)
        row["by_hand"] = peaks(hand, predict(hand))
    return row


def compared(out: Path) -> Iterator[str]:
    """One line of a table for each prediction."""
    yield "| run | allocated | traced | by hand | reserved | traced | by hand |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for row in map(json.loads, (out / "predicted.jsonl").read_text().splitlines()):
        path = out / f"{row['name']}.json"
        if not path.is_file():
            yield f"| {row['name']} | not run | | | | | |"
            continue
        measured = json.loads(path.read_text())
        cells = []
        for place, key in enumerate(("peak_allocated_mib", "peak_reserved_mib")):
            errors = [row[way][place] / measured[key] - 1 if way in row else None for way in ("traced", "by_hand")]
            cells += [f"{measured[key]:,.0f}", *["—" if one is None else f"{100 * one:+.1f} %" for one in errors]]
        yield f"| {row['name']} | {' | '.join(cells)} |"


def main() -> None:
    """Write the cases and what is predicted of them, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--set", choices=_PLANS, default="third")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if arguments.compare:
        print("\n".join(compared(arguments.out)))
        return
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    arguments.out.mkdir(parents=True, exist_ok=True)
    cases = [case for case in all_cases(arguments.set) if arguments.only in case["name"]]
    (arguments.out / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    with (arguments.out / "predicted.jsonl").open("w") as file:
        for case in cases:
            row = predicted(case)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
