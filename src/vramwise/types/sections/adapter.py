"""Which weights are trained: those of an adapter, of some blocks, or all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramwise.types.sections import setting


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

    neutral_why: ClassVar[str] = "no adapter"

    kind: str | None = field(metadata=setting(None, flat="adapter", compared=False))
    lora_r: int | None = field(metadata=setting(None, compared=False))
    lora_alpha: float | None = field(metadata=setting(None, compared=False))
    lora_dropout: float = field(metadata=setting(0.0))
    lora_target_linear: bool = field(metadata=setting(False, compared=False))
    lora_target_modules: tuple[str, ...] = field(metadata=setting((), compared=False))
    # bare parameters with an adapter, such as the 3-D weights of experts
    lora_target_parameters: tuple[str, ...] = field(metadata=setting((), compared=False, rare=True))
    # lora_target_linear means the linear modules' names, not PEFT's "all-linear"
    linear_targets_by_name: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="all-linear is passed to PEFT")
    )
    lora_modules_to_save: tuple[str, ...] = field(metadata=setting((), compared=False))
    # embeddings and a head tied to them, both trained whole, share one copy
    saved_pair_tied: bool = field(metadata=setting(False, compared=False, rare=True, plain="PEFT copies each module"))
    use_dora: bool = field(metadata=setting(False, compared=False))
    use_rslora: bool = field(metadata=setting(False, compared=False))
    lora_kernels: bool = field(metadata=setting(False, compared=False, rare=True, plain="the plain Trainer has none"))
    # layers whose LoRA runs in the trainer's own kernels: mlp, qkv, o, embedding
    fused_lora: tuple[str, ...] = field(
        metadata=setting((), phrase="fused LoRA kernels", rare=True, plain="the plain Trainer has none")
    )
    # those kernels compute the gradients of fp32 adapters in fp32
    fused_lora_wide_grads: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the plain Trainer has none")
    )
    # those kernels overwrite saved tensors with gradients and keep a buffer for 4-bit weights
    fused_lora_in_place: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the plain Trainer has none")
    )
    # the mlp kernel also supports two projections with a squared ReLU between them
    fused_lora_squared: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the plain Trainer has none")
    )
    # they are compiled with their layer: activation gradients and 4-bit weights get new tensors
    fused_lora_traced: bool = field(
        metadata=setting(False, compared=False, rare=True, plain="the plain Trainer has none")
    )
    # the output of embeddings requires gradients even if no block is checkpointed
    embeddings_want_grads: bool = field(
        metadata=setting(False, compared=False, plain="only if blocks are checkpointed")
    )
    # trained weights on a quantised base are cast to bf16 after they are created
    half_adapters: bool = field(metadata=setting(False, compared=False))
    # adapters keep the dtype of the base: PEFT does not cast them to fp32
    adapters_as_base: bool = field(metadata=setting(False, compared=False))
    # Regular expressions: parameters that match none of them are frozen. (): the method alone decides
    unfrozen: tuple[str, ...] = field(metadata=setting((), phrase="parameters unfrozen by name", rare=True))
    # only these blocks are trained, and only they are checkpointed
    trained_blocks: TrainedBlocks | None = field(metadata=setting(None, rare=True))
    # tokens added to the vocabulary, whose rows need training
    added_tokens: int = field(metadata=setting(0, rare=True))
