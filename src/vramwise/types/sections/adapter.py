"""Which weights are trained: an adapter's, some blocks', or all."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBlocks:
    """Some blocks of a model that is otherwise frozen: the last `count` (below 0: the first), or spread over it.

    `modules`: names of modules inside them; () for all. `others`: names of modules outside of blocks.
    """

    count: int
    spread: bool = False
    modules: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def numbers(self, layers: int) -> range:
        """The numbers of the trained blocks in a model of so many layers."""
        if self.spread:
            stride = max(1, layers // max(1, self.count))
            return range(stride - 1, layers, stride)
        return range(max(0, layers - self.count), layers) if self.count > 0 else range(min(-self.count, layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """`kind`: lora, qlora…; None: no adapter."""

    kind: str | None = field(metadata={"flat": "adapter"})
    lora_r: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_linear: bool
    lora_target_modules: tuple[str, ...]
    linear_targets_by_name: bool  # lora_target_linear means the linear modules' names, not PEFT's "all-linear"
    lora_modules_to_save: tuple[str, ...]
    saved_pair_tied: bool  # embeddings and a head tied to them, both trained whole, share one copy
    use_dora: bool
    use_rslora: bool
    lora_kernels: bool
    fused_lora: tuple[str, ...]  # layers whose LoRA runs in the trainer's own kernels: mlp, qkv, o, embedding
    fused_lora_wide_grads: bool  # those kernels make the gradients of fp32 adapters in fp32
    fused_lora_in_place: bool  # those kernels write gradients over what they saved, and keep a buffer for 4-bit weights
    fused_lora_squared: bool  # the kernel for mlp also takes two projections with a squared ReLU between them
    fused_lora_traced: bool  # they are compiled with their layer: gradients of the activation and 4-bit weights are new
    embeddings_want_grads: bool  # their output does, even where no block is checkpointed
    half_adapters: bool  # trained weights on a quantised base are cast to bf16 once they exist
    adapters_as_base: bool  # adapters stay in the base's type: PEFT makes no fp32 of them
    # Regular expressions: a parameter whose name none of them matches is frozen; (): nothing beyond the method
    unfrozen: tuple[str, ...]
    trained_blocks: TrainedBlocks | None  # only these blocks are trained, and only they are checkpointed
    added_tokens: int  # new in the vocabulary: their rows need training


NEUTRAL = Adapter(
    kind=None,
    lora_r=None,
    lora_alpha=None,
    lora_dropout=0.0,
    lora_target_linear=False,
    lora_target_modules=(),
    linear_targets_by_name=False,
    lora_modules_to_save=(),
    saved_pair_tied=False,
    use_dora=False,
    use_rslora=False,
    lora_kernels=False,
    fused_lora=(),
    fused_lora_wide_grads=False,
    fused_lora_in_place=False,
    fused_lora_squared=False,
    fused_lora_traced=False,
    embeddings_want_grads=False,
    half_adapters=False,
    adapters_as_base=False,
    unfrozen=(),
    trained_blocks=None,
    added_tokens=0,
)
NEUTRAL_WHY = "no adapter"
