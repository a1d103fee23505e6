"""DeepSeek V2 and V3 and who took their block: latent attention, a mixture of experts beside shared experts.

Kimi K2 and Moonlight have V3's, GLM 4.7 Flash and Mistral Small 4 too; GLM 5 adds an indexer that chooses tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.families.base import QWEN_EXPERT_NAMES, Block, Mixture, ModelType, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, experts, linear, mlp, norm, norms, router
from vramwise.types import ModelSpec

_OWN = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
_INDEX = ("index_head_dim", "index_n_heads")


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Only a part of each head is turned: that part counts as the head, as it does in transformers."""
    sizes = dict(found["sizes"])
    shared = fields.texts("indexer_types")
    if shared is not None and len(shared) == found["num_hidden_layers"]:
        # layers that share what an earlier one chose have no indexer
        kinds = tuple("indexed_attention" if kind == "full" else "full_attention" for kind in shared)
        found = {**found, "layer_types": kinds}
    elif "index_n_heads" in sizes:
        found = {**found, "layer_types": ("indexed_attention",) * found["num_hidden_layers"]}
    return {
        "layer_types": found["layer_types"],
        "head_dim": sizes["qk_rope_head_dim"],
        "rotary_fraction": 1.0,
        **dense_layers(fields, found),
    }


def dense_layers(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Newer files list what each layer's feed-forward is."""
    written = fields.texts("mlp_layer_types")
    if written is None or not found.get("num_experts"):
        return {}
    return {"dense_layers": tuple(layer for layer, kind in enumerate(written) if kind == "dense")}


def latent(model: ModelSpec, block: Block) -> Parts:
    """Latent attention: queries through a rank of their own where the model has one."""
    hidden, heads, name = model.hidden_size, model.num_attention_heads, "self_attn"
    rank, turned, plain = (model.size(key) for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    queries = model.size("q_lora_rank")
    if queries:
        yield from linear(f"{name}.q_a_proj", hidden, queries, model.qkv_bias)
        yield from norm(f"{name}.q_a_layernorm", model, block, queries)
        yield from linear(f"{name}.q_b_proj", queries, heads * (plain + turned), False)
    else:
        yield from linear(f"{name}.q_proj", hidden, heads * (plain + turned), False)
    yield from linear(f"{name}.kv_a_proj_with_mqa", hidden, rank + turned, model.qkv_bias)
    yield from norm(f"{name}.kv_a_layernorm", model, block, rank)
    yield from linear(f"{name}.kv_b_proj", rank, heads * (plain + model.size("v_head_dim")), False)
    yield from linear(f"{name}.o_proj", heads * model.size("v_head_dim"), hidden, model.attention_out_bias)


def _indexer(model: ModelSpec) -> Parts:
    """GLM 5: small heads that choose which tokens are attended to. What they take in a step is not modelled."""
    width, heads, name = model.size("index_head_dim"), model.size("index_n_heads"), "self_attn.indexer"
    yield from linear(f"{name}.wq_b", model.size("q_lora_rank"), heads * width, False)
    yield from linear(f"{name}.wk", model.hidden_size, width, False)
    yield Parameter(f"{name}.k_norm.weight", (width,), "norm")
    yield Parameter(f"{name}.k_norm.bias", (width,), "norm")
    yield from linear(f"{name}.weights_proj", model.hidden_size, heads, False)


def mixture(model: ModelSpec) -> Parts:
    """Experts, their router, and the shared ones."""
    yield from experts(model)
    yield from router(model)
    yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    yield from latent(model, block)
    if model.layer_types[layer] == "indexed_attention":
        yield from _indexer(model)
    yield from mixture(model) if model.num_experts and layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)


_MIXTURE = Mixture(normalised=True, own_width=True, dense_layers="first")
_BLOCK = Block(
    mixers=dict.fromkeys(("full_attention", "indexed_attention", "deepseek_sparse_attention"), "latent"),
    mixture=replace(_MIXTURE, peft_names=QWEN_EXPERT_NAMES),
)


def _type(
    sizes: tuple[int, int, int, int | None, int],
    own: tuple[str, ...] = _OWN,
    block: Block | None = None,
    **defaults: Any,
) -> ModelType:
    return model_type(
        block=block,
        sizes=sizes,
        switches={"qkv_bias": "attention_bias", "attention_out_bias": "attention_bias"},
        own_sizes=own,
        kv_heads="heads",
        settles=_settles,
        **defaults,
    )


_V3: dict[str, Any] = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "head_dim": 64,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
}

FAMILY = Family(
    name="deepseek",
    block=_BLOCK,
    layout=Layout(by_layer=_layer),
    types={
        "deepseek_v2": _type(
            (102400, 11008, 32, None, 2048),
            **{
                **_V3,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "moe_intermediate_size": 1407,
                "first_k_dense_replace": 0,
            },
        ),
        "deepseek_v3": _type((129280, 18432, 128, 128, 4096), **_V3),
        "kimi_k2": _type((129280, 18432, 128, 128, 4096), **_V3),
        "glm4_moe_lite": _type(
            (154880, 10240, 20, 20, 202752),
            **{
                **_V3,
                "q_lora_rank": 768,
                "qk_nope_head_dim": 192,
                "v_head_dim": 256,
                "n_routed_experts": 64,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 1536,
                "first_k_dense_replace": 1,
            },
        ),
        "mistral4": _type(
            (131072, 12288, 32, 32, 1048576),
            # PEFT does not redirect the names of its experts: the text model stands inside Mistral 3
            block=replace(_BLOCK, mixture=_MIXTURE),
            **{
                **_V3,
                "q_lora_rank": 1024,
                "kv_lora_rank": 256,
                "qk_nope_head_dim": 64,
                "n_routed_experts": 128,
                "num_experts_per_tok": 4,
                "first_k_dense_replace": 0,
            },
        ),
        "glm_moe_dsa": _type(
            (154880, 12288, 64, 64, 202752),
            _OWN + _INDEX,
            **{
                **_V3,
                "q_lora_rank": 2048,
                "qk_nope_head_dim": 192,
                "v_head_dim": 256,
                "index_head_dim": 128,
                "index_n_heads": 32,
            },
        ),
    },
    measured=False,
    coarse="its indexer, where it has one, is left out of a step's activations",
)
