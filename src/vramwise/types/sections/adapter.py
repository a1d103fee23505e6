"""Which weights are trained: those of an adapter, of some blocks, or all."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBlocks:
    """The trained blocks of a model that is otherwise frozen.

    They are the last `count` blocks (below 0: the first), or are spread evenly over the model. `modules`: names of the
    trained modules inside the blocks; () for all. `others`: names of trained modules outside blocks.
    """

    count: int
    spread: bool = False
    modules: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def numbers(self, layers: int) -> range:
        """Return the numbers of the trained blocks in a model with this many layers."""
        if self.spread:
            stride = max(1, layers // max(1, self.count))
            return range(stride - 1, layers, stride)
        return range(max(0, layers - self.count), layers) if self.count > 0 else range(min(-self.count, layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """`kind` is lora, qlora…, or None for no adapter."""

    kind: str | None = field(metadata={"flat": "adapter"})
    lora_r: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_linear: bool
    lora_target_modules: tuple[str, ...]
    lora_target_parameters: tuple[str, ...]  # bare parameters with an adapter, such as the 3-D weights of experts
    linear_targets_by_name: bool  # lora_target_linear means the linear modules' names, not PEFT's "all-linear"
    lora_modules_to_save: tuple[str, ...]
    saved_pair_tied: bool  # embeddings and a head tied to them, both trained whole, share one copy
    use_dora: bool
    use_rslora: bool
    lora_kernels: bool
    fused_lora: tuple[str, ...]  # layers whose LoRA runs in the trainer's own kernels: mlp, qkv, o, embedding
    fused_lora_wide_grads: bool  # those kernels compute the gradients of fp32 adapters in fp32
    # those kernels overwrite saved tensors with gradients and keep a buffer for 4-bit weights
    fused_lora_in_place: bool
    fused_lora_squared: bool  # the mlp kernel also supports two projections with a squared ReLU between them
    # they are compiled with their layer: activation gradients and 4-bit weights get new tensors
    fused_lora_traced: bool
    embeddings_want_grads: bool  # the output of embeddings requires gradients even if no block is checkpointed
    half_adapters: bool  # trained weights on a quantised base are cast to bf16 after they are created
    adapters_as_base: bool  # adapters keep the dtype of the base: PEFT does not cast them to fp32
    # Regular expressions: parameters that match none of them are frozen. (): the method alone decides
    unfrozen: tuple[str, ...]
    trained_blocks: TrainedBlocks | None  # only these blocks are trained, and only they are checkpointed
    added_tokens: int  # tokens added to the vocabulary, whose rows need training


NEUTRAL = Adapter(
    kind=None,
    lora_r=None,
    lora_alpha=None,
    lora_dropout=0.0,
    lora_target_linear=False,
    lora_target_modules=(),
    lora_target_parameters=(),
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
