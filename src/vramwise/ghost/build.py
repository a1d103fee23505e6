"""From a `ModelSpec` and the loaded weights to a model of ghost layers: which parts a family is made of."""

from __future__ import annotations

from vramwise.errors import VramwiseError
from vramwise.facts.layouts import layout_of
from vramwise.ghost.checkpointing import Checkpoint, non_reentrant, reentrant
from vramwise.ghost.dtypes import BY_NAME
from vramwise.ghost.families import (
    BLOCK_NORMS,
    DROPS_INSIDE,
    FUSED_ATTENTION,
    GEMMA,
    LIGER_TAKES_HEAD_NORMS,
    MASKS_BY_KIND,
    PARALLEL_ORDER,
    PLAIN_MLP,
    ROTATIONS,
    SANDWICH,
)
from vramwise.ghost.model.attention import (
    Attention,
    AttentionLayer,
    Heads,
)
from vramwise.ghost.model.block import (
    KeepingBlock,
    Mlp,
    NeoxBlock,
    ParallelBlock,
    PostNormBlock,
    PreNormBlock,
    SandwichBlock,
)
from vramwise.ghost.model.causal_lm import Block, Body
from vramwise.ghost.model.kernels import Eager, Flash, Kernel, MathSdpa, Sdpa, SinkEager
from vramwise.ghost.model.liger import LigerFusedGatedMlp, LigerGatedMlp, LigerNorm
from vramwise.ghost.model.linear import Linear, Projection
from vramwise.ghost.model.mlp import DroppedMlp, FusedGatedMlp, GatedMlp, PlainMlp, activation_named
from vramwise.ghost.model.moe import Experts, ExpertWeight, MoeMlp, PackedExperts, Router
from vramwise.ghost.model.norms import CohereNorm, GemmaNorm, LayerNorm, Norm, RmsNorm, WideRmsNorm
from vramwise.ghost.model.rotary import (
    Rotation,
    rotate,
    rotate_part,
)
from vramwise.ghost.offload import reentrant_to_host
from vramwise.ghost.ops.liger import rotate_in_place
from vramwise.ghost.projections import projection
from vramwise.ghost.sharding.gathering import Gathering
from vramwise.ghost.weights import Weights


class Builder:
    """Builds one model; knows its weights and the run."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.model = weights.model
        self.run = weights.run
        self.layout = layout_of(weights.model)
        self.layers = self.layout.inside(weights.model, self.layout.layers)
        self.embedding = self.layout.inside(weights.model, self.layout.embedding)
        self.gathering = Gathering(weights)

    def body(self) -> Body:
        """The model without its head."""
        model, run = self.model, self.run
        norm = self.gathering.root(self.norm(self.layout.inside(model, self.layout.final_norm)))
        blocks = [self.gathering.block(layer, self.block(layer)) for layer in range(model.num_hidden_layers)]
        checkpoint = self._checkpoint()
        kinds, windows = self._windows()
        return Body(
            embed=self.weights.by_name[f"{self.embedding}.weight"],
            blocks=blocks,
            norm=norm,
            rotary_dim=int(model.head_dim * model.rotary_fraction),
            attention=run.attn_implementation,
            checkpoint=checkpoint,
            input_grads=run.recompute and run.adapter is not None,
            scaled_embedding=model.family in GEMMA,
            scaled_after=model.model_type == "granite",
            masks_by_kind=model.model_type in MASKS_BY_KIND,
            windows=windows,
            kinds=kinds,
            local_tables=model.family == "gemma3",
            wide_tables=model.family == "olmo2",
            half_tables=model.family == "gpt_oss",
            positions=self.weights.get(f"{self.layout.positions}.weight") if self.layout.positions else None,
            dropout=model.hidden_dropout if model.family == "gpt_neox" else model.embedding_dropout,
            drops_embeddings=model.family == "phi",
            always_masked=model.family == "falcon" and run.attn_implementation == "sdpa",
        )

    def _checkpoint(self) -> Checkpoint | None:
        """How blocks are checkpointed, if they are."""
        run = self.run
        if not run.recompute:
            return None
        if run.activation_offloading in ("hidden_states", "legacy"):
            return reentrant_to_host
        return reentrant if run.checkpointing_reentrant else non_reentrant

    def _windows(self) -> tuple[tuple[str, ...], dict[str, int | None]]:
        """The kind of each layer, and each kind's window. A model of one kind of layer makes one mask."""
        model = self.model
        if model.layer_types:
            kinds = tuple("sliding" if "sliding" in kind else "full" for kind in model.layer_types)
            windows: dict[str, int | None] = {"full": None}
            if "sliding" in kinds:
                windows["sliding"] = model.sliding_window
            return kinds, windows
        return (), {"full": model.sliding_window}

    def head(self) -> Projection:
        """The output projection; tied ones use the embedding's weight."""
        head: Projection
        if self.model.tie_word_embeddings and "lm_head.weight" not in self.weights.by_name:
            embed = self.weights.by_name[f"{self.embedding}.weight"]
            head = Linear(embed, self.weights.get("lm_head.bias"))
        else:
            head = projection(self.weights, "lm_head")
        return self.gathering.head(head)

    def norm(self, name: str) -> Norm:
        """The norm of that name, of the family's kind."""
        weight = self.weights.get(f"{name}.weight")
        if self.model.family == "cohere" and weight is not None:
            return CohereNorm(weight)
        if self.model.norm != "rms" or weight is None:
            return LayerNorm(weight, self.weights.get(f"{name}.bias"))
        if "rms_norm" in self.run.liger and not self._left_by_liger(name):
            return LigerNorm(weight, in_place=self.model.family not in ("gemma2", "gemma3"))
        if self.model.family in GEMMA:
            return GemmaNorm(weight)
        if self.model.family in ("olmo2", "gpt_oss"):
            return WideRmsNorm(weight)
        return RmsNorm(weight)

    def _left_by_liger(self, name: str) -> bool:
        """Where Liger replaces the norms of a model that is built already, most heads keep theirs."""
        of_heads = name.endswith(("q_norm", "k_norm"))
        return of_heads and not self.run.liger_before_build and self.model.model_type not in LIGER_TAKES_HEAD_NORMS

    def _norm_or_none(self, name: str) -> Norm | None:
        return self.norm(name) if self.weights.get(f"{name}.weight") is not None else None

    def kernel(self, start: str) -> Kernel:
        """The attention implementation of the run."""
        model = self.model
        sinks = self.weights.get(f"{start}self_attn.sinks")
        if self.run.attn_implementation == "eager" and sinks is not None:
            return SinkEager(sinks, model.attention_dropout)
        if self.run.attn_implementation == "eager":
            return Eager(model.attn_logit_softcapping, model.attention_dropout)
        if self.run.attn_implementation == "sdpa":
            return MathSdpa() if model.family == "falcon" else Sdpa()
        return Flash()

    def rotation(self, layer: int) -> Rotation | None:
        """How queries and keys are turned; SmolLM 3 leaves every fourth layer alone."""
        alone = self.model.model_type == "smollm3" and (layer + 1) % 4 == 0
        if alone or self.model.rotary_fraction == 0:
            return None
        if "rope" in self.run.liger and self.model.rotary_fraction == 1:
            return rotate_in_place
        special = ROTATIONS.get(self.model.family)
        if special is not None:
            return special
        if self.model.family == "phi3" or self.model.rotary_fraction < 1:
            return rotate_part
        return rotate

    def attention(self, start: str, layer: int) -> AttentionLayer:
        """The attention of the block whose names start so."""
        model = self.model
        heads = Heads(query=model.num_attention_heads, kv=model.num_key_value_heads, width=model.head_dim)
        fused = FUSED_ATTENTION.get(model.family)
        if fused is not None:
            kind, qkv, out = fused
            more = {"dropout": model.hidden_dropout} if model.family == "gpt2" else {}
            return kind(
                heads=heads,
                qkv=projection(self.weights, f"{start}{qkv}"),
                o=projection(self.weights, f"{start}{out}"),
                kernel=self.kernel(start),
                rotate=self.rotation(layer),
                **more,
            )
        place = f"{start}self_attn."
        return Attention(
            heads=heads,
            q=projection(self.weights, f"{place}q_proj"),
            k=projection(self.weights, f"{place}k_proj"),
            v=projection(self.weights, f"{place}v_proj"),
            o=projection(self.weights, f"{place}dense" if model.family == "phi" else f"{place}o_proj"),
            kernel=self.kernel(start),
            rotate=self.rotation(layer),
            q_norm=self._norm_or_none(f"{place}q_norm"),
            k_norm=self._norm_or_none(f"{place}k_norm"),
            norm_whole=model.qk_norm == "full",
            norm_late=model.family == "gemma3",
            dropout=model.hidden_dropout if model.family in DROPS_INSIDE else 0.0,
        )

    def mlp(self, start: str, layer: int) -> Mlp:
        """The feed-forward part of a block, with dropout where that is a part of it."""
        made = self._mlp(start, layer)
        model = self.model
        return DroppedMlp(made, model.hidden_dropout) if model.family in DROPS_INSIDE and model.hidden_dropout else made

    def _mlp(self, start: str, layer: int) -> Mlp:
        model = self.model
        place = f"{start}mlp."
        if model.num_experts and layer not in model.dense_layers:
            return self._mixture(place)
        if model.fused_gate_up:
            fused = LigerFusedGatedMlp if "glu_activation" in self.run.liger else FusedGatedMlp
            return fused(*[projection(self.weights, f"{place}{name}") for name in ("gate_up_proj", "down_proj")])
        if not model.gated_mlp:
            up, down = PLAIN_MLP.get(model.family, ("up_proj", "down_proj"))
            act = activation_named(model.activation)
            return PlainMlp(projection(self.weights, f"{place}{up}"), projection(self.weights, f"{place}{down}"), act)
        gated = LigerGatedMlp if "glu_activation" in self.run.liger else GatedMlp
        return gated(*[projection(self.weights, f"{place}{part}_proj") for part in ("gate", "up", "down")])

    def _mixture(self, place: str) -> Mlp:
        """A mixture of experts."""
        model, by_name = self.model, self.weights.by_name
        gpt_oss = model.family == "gpt_oss"
        router = f"{place}router" if gpt_oss else f"{place}gate"
        if f"{router}.weight" not in by_name:
            raise VramwiseError(f"a mixture of experts in a block of the family '{model.family}' is not supported")
        shared_name = next(
            (n for n in ("shared_expert", "shared_experts") if f"{place}{n}.down_proj.weight" in by_name), None
        )
        shared = None
        if shared_name is not None:
            shared = GatedMlp(
                *[projection(self.weights, f"{place}{shared_name}.{part}_proj") for part in ("gate", "up", "down")]
            )
        has_gate = f"{place}shared_expert_gate.weight" in by_name
        return MoeMlp(
            router=Router(
                weight=by_name[f"{router}.weight"],
                bias=self.weights.get(f"{router}.bias"),
                top_k=model.num_experts_per_tok,
                normalised=model.family in ("mixtral", "qwen3_moe", "glm4_moe"),
                cast_back=model.family != "mixtral",
                softmax_last=gpt_oss,
            ),
            experts=Experts(
                gate_up=self._expert_weight(f"{place}experts.gate_up_proj"),
                down=self._expert_weight(f"{place}experts.down_proj"),
                hidden=model.hidden_size,
                intermediate=model.moe_intermediate_size,
                biased=f"{place}experts.gate_up_proj_bias" in by_name,
                clamped=gpt_oss,
                gate_up_lora=self.weights.adapters.get(f"{place}experts.gate_up_proj"),
                down_lora=self.weights.adapters.get(f"{place}experts.down_proj"),
            ),
            shared=shared,
            shared_gate=projection(self.weights, f"{place}shared_expert_gate") if has_gate else None,
        )

    def _expert_weight(self, name: str) -> ExpertWeight:
        shape, bits = self.weights.shapes.get(name), self.run.expert_quantization
        if shape is None or bits is None:
            return self.weights.by_name[name]
        return PackedExperts(shape=shape, bits=bits, dtype=BY_NAME[self.run.weights_dtype])

    def block(self, layer: int) -> Block:
        """One block."""
        family = self.model.family
        start = f"{self.layers}.{layer}."
        label = f"layers.{layer}"
        attention, mlp = self.attention(start, layer), self.mlp(start, layer)
        if family in SANDWICH:
            names = SANDWICH[family]
            norms = [self.norm(f"{start}{name}_layernorm") for name in names]
            return SandwichBlock(
                label=label,
                attention=attention,
                mlp=mlp,
                norm1=norms[0],
                norm2=norms[1],
                norm3=norms[2],
                norm4=norms[3],
            )
        if family == "olmo2":
            return PostNormBlock(
                label=label,
                attention=attention,
                mlp=mlp,
                norm1=self.norm(f"{start}post_attention_layernorm"),
                norm2=self.norm(f"{start}post_feedforward_layernorm"),
            )
        if family == "gpt_neox" and self.model.parallel_residual:
            norms = [self.norm(f"{start}{name}_layernorm") for name in ("input", "post_attention")]
            rate = self.model.hidden_dropout
            return NeoxBlock(label=label, attention=attention, mlp=mlp, norm1=norms[0], norm2=norms[1], dropout=rate)
        if family in ("phi", "cohere", "falcon") and self.model.parallel_residual:
            two = self._norm_or_none(f"{start}ln_mlp")
            return ParallelBlock(
                label=label,
                attention=attention,
                mlp=mlp,
                norm1=self.norm(f"{start}ln_attn" if two is not None else f"{start}input_layernorm"),
                norm2=two,
                order=PARALLEL_ORDER[family],
                dropout=self.model.hidden_dropout,
            )
        if family == "falcon":
            norms = [self.norm(f"{start}{name}_layernorm") for name in ("input", "post_attention")]
            return KeepingBlock(
                label=label,
                attention=attention,
                mlp=mlp,
                norm1=norms[0],
                norm2=norms[1],
                attention_dropout=self.model.attention_dropout,
                dropout=self.model.hidden_dropout,
            )
        first, second = BLOCK_NORMS.get(family, ("input_layernorm", "post_attention_layernorm"))
        return PreNormBlock(
            label=label,
            attention=attention,
            mlp=mlp,
            norm1=self.norm(f"{start}{first}"),
            norm2=self.norm(f"{start}{second}"),
            scaled=self.model.model_type == "granite",
            dropout=0.0 if family in DROPS_INSIDE else self.model.hidden_dropout,
        )
