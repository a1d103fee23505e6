"""What one rank of a sharded fine-tune holds, measured without a GPU: `python bench/sharded_rank.py --help`.

torch's own FSDP runs on the CPU in a process group that only pretends to talk to its other ranks; a dispatch mode looks
at every storage that any op makes and adds up what lives, after each op. Activations are other ones than on a GPU, so
the batch is small: what is left is weights, gathers, gradients and exchange buffers. Optimizer states are not counted.

Needs torch, transformers and peft. The figures are in tests/ghost/test_sharding.py (torch 2.13, transformers 5.22).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

BF16 = torch.bfloat16


class Living(TorchDispatchMode):
    """Adds up living storages by the function of torch that made them; keeps the most of each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "load"
        self.known: dict[int, tuple[StorageWeakRef, str]] = {}
        self.most: dict[str, tuple[int, dict[str, int]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((out,)):
            if isinstance(leaf, torch.Tensor) and not hasattr(leaf, "_local_tensor"):
                self.note(leaf, None)
        self.count()
        return out

    def note(self, tensor: torch.Tensor, made_by: str | None) -> None:
        """Remember a storage that has not been seen."""
        storage = tensor.untyped_storage()
        known = self.known.get(storage._cdata)
        if known is None or known[0].expired():
            self.known[storage._cdata] = (StorageWeakRef(storage), made_by or self._maker())

    def _maker(self) -> str:
        """The innermost function of FSDP or of an optimizer on the stack, else the phase."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if "torch/optim" in name:
                return "optimizer"
            if "/fsdp/" in name and frame.f_code.co_name not in ("allocate", "<listcomp>", "forward"):
                return frame.f_code.co_name
            frame = frame.f_back  # type: ignore[assignment]
        return self.phase

    def count(self) -> None:
        """Add up: storages are resized behind the dispatcher's back, so their sizes are asked for anew."""
        found: dict[str, int] = {}
        for key, (weak, made_by) in list(self.known.items()):
            storage = None if weak.expired() else torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if storage is None:
                del self.known[key]
            elif made_by != "optimizer":
                found[made_by] = found.get(made_by, 0) + storage.nbytes()
        total = sum(found.values())
        if total > self.most.get(self.phase, (0, {}))[0]:
            self.most[self.phase] = (total, found)


def build(options: argparse.Namespace) -> torch.nn.Module:
    """A small llama in bf16, with adapters if wanted."""
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=32000,
        attn_implementation="sdpa",
        use_cache=False,
        tie_word_embeddings=options.tied,
    )
    model: Any = LlamaForCausalLM(config).to(BF16)
    if options.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": options.checkpointing == "reentrant"})
        if options.lora:
            model.enable_input_require_grads()
    return model.train()


def shard(model: Any, options: argparse.Namespace) -> Any:
    """As accelerate 1.15 does it, or as Axolotl 0.19 does FSDP 2 instead."""
    if options.style == "fsdp1":
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
        return FullyShardedDataParallel(
            model.float(),
            auto_wrap_policy=policy,
            mixed_precision=MixedPrecision(BF16, BF16, BF16),
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
    sizes = (options.groups, options.ranks) if options.groups > 1 else (options.ranks,)
    names = ("replicate", "shard")[-len(sizes) :]
    settings: dict[str, Any] = {
        "mesh": init_device_mesh("cpu", sizes, mesh_dim_names=names),
        "mp_policy": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=BF16, output_dtype=BF16),
    }
    drops = {"reshard_after_forward": not options.keep}
    base = model.get_base_model() if options.lora else model
    if options.style == "accelerate":
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        for layer in base.model.layers:
            fully_shard(layer, **settings, **drops)
        tail = [base.model.norm, base.lm_head]
        if base.config.tie_word_embeddings:
            tail.insert(1, base.model.embed_tokens)
        else:
            fully_shard(base.model.embed_tokens, **settings, **drops)
        fully_shard(tail, **settings, reshard_after_forward=False)
        fully_shard(model, **settings)
        return model
    for layer in base.model.layers:
        for module in layer.modules():
            for part in ("lora_A", "lora_B"):
                if hasattr(module, part):
                    fully_shard(getattr(module, part)["default"], **settings, **drops)
        fully_shard(layer, **settings, **drops)
    fully_shard(model, **settings, **drops)
    return model


def train(model: Any, living: Living, accumulation: int, fsdp1: bool, sync_each_batch: bool) -> None:
    """Two steps."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, foreach=True)
    ids = torch.randint(0, 32000, (1, 32))
    for step in (1, 2):
        for micro in range(accumulation):
            exchanging = sync_each_batch or micro == accumulation - 1
            context = model.no_sync() if fsdp1 and not exchanging else contextlib.nullcontext()
            if not fsdp1:
                model.set_requires_gradient_sync(exchanging)
            with context:
                living.phase = f"step {step} forward"
                with torch.autocast("cpu", BF16):
                    loss = model(input_ids=ids, labels=ids).loss
                living.phase = f"step {step} backward"
                loss.backward()
                del loss
        living.phase = f"step {step} optimizer"
        living.count()
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    """Measure one run and print the most of each phase, and what it is made of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--style", choices=("accelerate", "axolotl", "fsdp1"), default="axolotl")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--tied", action="store_true", help="the head is the embeddings")
    parser.add_argument("--checkpointing", choices=("reentrant", "non-reentrant"))
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--sync-each-batch", action="store_true", help="exchange gradients at every micro-step")
    parser.add_argument("--ranks", type=int, default=4, help="that spread weights among them")
    parser.add_argument("--groups", type=int, default=1, help="of such ranks")
    parser.add_argument("--keep", action="store_true", help="reshard_after_forward false")
    options = parser.parse_args()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=options.ranks * options.groups)
    model = shard(build(options), options)
    living = Living()
    for parameter in model.parameters():
        living.note(getattr(parameter, "_local_tensor", parameter), "shards")
    with living:
        train(model, living, options.accumulation, options.style == "fsdp1", options.sync_each_batch)
    for phase, (total, parts) in living.most.items():
        print(f"{phase:20s} {total:>12,}")
        for name, nbytes in sorted(parts.items(), key=lambda part: -part[1]):
            if nbytes >= 1 << 20:
                print(f"    {name:40s} {nbytes:>12,}")


if __name__ == "__main__":
    main()
