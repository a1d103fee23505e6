"""Mixtures of experts unlike the common one: without a gate, beside an MLP, or every token through every expert."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramwise.ghost.build_layers import projection
from vramwise.ghost.model.mlp import FusedGatedMlp, GatedMlp, PlainMlp, activation_named, relu_squared
from vramwise.ghost.model.moe import Experts, ExpertWeight, MoeMlp, Router, opened
from vramwise.ghost.model.norms import UnscaledRmsNorm
from vramwise.ghost.ops.elementwise import activation, add, mul, result_activation, scale
from vramwise.ghost.ops.general import general
from vramwise.ghost.ops.matmul import batched, linear
from vramwise.ghost.ops.shape import chunk_last, view
from vramwise.ghost.tape import Parameter, Tape, Tensor
from vramwise.models.families.base import Mixture
from vramwise.types import ExpertMasks

if TYPE_CHECKING:
    from vramwise.ghost.build_feed_forward import FeedForwards

Mlp = Callable[[Tape, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainExperts(Experts):
    """Experts of two matrices: the first gives the inner width itself, and a squared ReLU follows."""

    def _gate(self, t: Tape, x: Tensor) -> Tensor:
        return relu_squared(t, x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Nemotron 3 Super: experts work on a narrower stream."""

    down: Mlp
    up: Mlp
    mixture: Mlp

    def __call__(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        return self.up(t, self.mixture(t, self.down(t, hidden)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllTokens:
    """Llama 4: each expert gets every token, weighted by its score, which is zero for most."""

    router: Parameter
    gate_up: ExpertWeight
    down: ExpertWeight
    shared: Mlp

    def __call__(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        shape = hidden.shape
        tokens, width, count = shape[0] * shape[1], shape[2], self.router.shape[0]
        hidden = view(t, hidden, (tokens, width))
        scores = result_activation(t, linear(t, hidden, self.router))
        repeated = general(t, (hidden,), (count * tokens, width), hidden.dtype)
        weighted = mul(t, repeated, general(t, (scores,), (count * tokens, 1), hidden.dtype))
        del repeated
        both = batched(t, view(t, weighted, (count, tokens, width)), opened(t, self.gate_up))
        gate, up = chunk_last(t, both)
        routed = batched(t, mul(t, up, activation(t, gate)), opened(t, self.down))
        out = self.shared(t, hidden)
        summed = general(t, (routed,), (tokens, width), hidden.dtype)
        return view(t, add(t, out, summed), shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormedRouter(Router):
    """Gemma 4: the input is normed and scaled first, by a weight and by a number."""

    factor: Parameter

    def _logits(self, t: Tape, hidden: Tensor) -> Tensor:
        hidden = mul(t, UnscaledRmsNorm()(t, hidden), self.factor)
        return linear(t, scale(t, hidden), self.weight, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The results of experts and of an MLP, added; Gemma 4 norms both first."""

    mixture: Mlp
    mlp: Mlp
    norms: tuple[Mlp, ...] = ()

    def __call__(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        left = self.mlp(t, hidden)
        right = self.mixture(t, self.norms[0](t, hidden) if self.norms else hidden)
        if self.norms:
            left, right = self.norms[1](t, left), self.norms[2](t, right)
        return add(t, right, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneByOne:
    """DBRX: a product an expert and weight, over the tokens it was chosen for; summed up over the experts."""

    router: Router
    gate: Parameter
    up: Parameter
    down: Parameter
    width: int

    def __call__(self, t: Tape, hidden: Tensor) -> Tensor:
        """Return the layer's output."""
        shape = hidden.shape
        tokens, wide = shape[0] * shape[1], shape[2]
        hidden = view(t, hidden, (tokens, wide))
        logits, weights, indices = self.router(t, hidden)
        rows = tokens * indices.shape[1]
        chosen = general(t, (hidden,), (rows, wide), hidden.dtype)
        gate = general(t, (chosen, self.gate), (rows, self.width), hidden.dtype, saved=(chosen, self.gate))
        up = general(t, (chosen, self.up), (rows, self.width), hidden.dtype, saved=(chosen, self.up))
        inner = mul(t, activation(t, gate), up)
        out = general(t, (inner, self.down), (rows, wide), hidden.dtype, saved=(inner, self.down))
        out = general(t, (out, weights), (tokens, wide), hidden.dtype, saved=(out, weights))
        del logits, indices
        return view(t, out, shape)


def own_mixture(builder: FeedForwards, place: str, facts: Mixture) -> Mlp:
    """Return the mixture of a family that has one of its own."""
    start = place.removesuffix(f"{builder.facts.feed_forward}.")
    if facts.runs == "all tokens":
        return _all_tokens(builder, place)
    if facts.runs == "plain":
        return _plain(builder, place)
    if facts.runs == "one by one":
        return _one_by_one(builder, place, facts)
    if facts.runs == "beside an MLP":
        return _gemma(builder, start)
    weights = builder.weights
    fused = FusedGatedMlp(*[projection(weights, f"{start}shared_mlp.{name}_linear") for name in ("input", "output")])
    mixture = MoeMlp(
        router=router_of(builder, f"{place}{facts.router}", facts), experts=experts_of(builder, f"{place}experts.")
    )
    return Beside(mixture=mixture, mlp=fused)


def router_of(builder: FeedForwards, name: str, facts: Mixture) -> Router:
    """Return the router whose weight and bias have this name."""
    return Router(
        weight=builder.weights.by_name[f"{name}.weight"],
        bias=builder.weights.get(f"{name}.bias"),
        top_k=builder.model.num_experts_per_tok,
        normalised=facts.normalised,
        cast_back=facts.cast_back,
        softmax_last=facts.softmax_last,
        wide=facts.wide_router,
    )


def experts_of(
    builder: FeedForwards, place: str, *, biased: bool = False, clamped: bool = False, masks: ExpertMasks = "products"
) -> Experts:
    """Return the experts whose weights are at this place, with their adapters."""
    model = builder.model
    return Experts(
        gate_up=builder.expert_weight(f"{place}gate_up_proj"),
        down=builder.expert_weight(f"{place}down_proj"),
        hidden=model.hidden_size,
        intermediate=model.moe_intermediate_size,
        gate_up_lora=builder.weights.adapters.get(f"{place}gate_up_proj"),
        down_lora=builder.weights.adapters.get(f"{place}down_proj"),
        biased=biased,
        clamped=clamped,
        masks=masks,
    )


def _all_tokens(builder: FeedForwards, place: str) -> Mlp:
    shared = [projection(builder.weights, f"{place}shared_expert.{part}_proj") for part in ("gate", "up", "down")]
    return AllTokens(
        router=builder.weights.by_name[f"{place}router.weight"],
        gate_up=builder.expert_weight(f"{place}experts.gate_up_proj"),
        down=builder.expert_weight(f"{place}experts.down_proj"),
        shared=GatedMlp(*shared),
    )


def _plain(builder: FeedForwards, place: str) -> Mlp:
    model, weights = builder.model, builder.weights
    facts = builder.facts.mixture
    assert facts is not None
    up, down = [projection(weights, f"{place}shared_experts.{name}_proj") for name in ("up", "down")]
    latent = model.size("moe_latent_size")
    mixture: Mlp = MoeMlp(
        router=router_of(builder, f"{place}gate", facts),
        experts=PlainExperts(
            gate_up=builder.expert_weight(f"{place}experts.up_proj"),
            down=builder.expert_weight(f"{place}experts.down_proj"),
            hidden=latent or model.hidden_size,
            intermediate=model.moe_intermediate_size // 2,
        ),
    )
    shared = PlainMlp(up, down, activation_named(model.activation))
    if latent:
        # the router sees the wide stream; that it is run on the narrow one here changes little
        narrow = [projection(weights, f"{place}fc{number}_latent_proj") for number in (1, 2)]
        mixture = Latent(down=narrow[0], up=narrow[1], mixture=mixture)
    return Beside(mixture=mixture, mlp=shared)


def _gemma(builder: FeedForwards, start: str) -> Mlp:
    facts = builder.facts.mixture
    assert facts is not None
    parts = [projection(builder.weights, f"{start}mlp.{part}_proj") for part in ("gate", "up", "down")]
    names = ("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")
    router = NormedRouter(
        weight=builder.weights.by_name[f"{start}router.proj.weight"],
        bias=None,
        top_k=builder.model.num_experts_per_tok,
        normalised=facts.normalised,
        cast_back=facts.cast_back,
        factor=builder.weights.by_name[f"{start}router.scale"],
    )
    mixture = MoeMlp(router=router, experts=experts_of(builder, f"{start}experts."))
    return Beside(
        mixture=mixture, mlp=GatedMlp(*parts), norms=tuple(builder.norms.norm(f"{start}{name}") for name in names)
    )


def _one_by_one(builder: FeedForwards, place: str, facts: Mixture) -> Mlp:
    gate, up, down = [builder.weights.by_name[f"{place}experts.mlp.{name}"] for name in ("w1", "v1", "w2")]
    router = router_of(builder, f"{place}{facts.router}", facts)
    return OneByOne(router=router, gate=gate, up=up, down=down, width=builder.model.moe_intermediate_size)
