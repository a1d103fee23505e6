"""Compile a model of a type as a trainer does, for a fake H200, and write the program of what compiled code allocates.

Needs torch (a CPU build will do), triton, transformers, and peft or torchao for some ways; g++ once.

    python scripts/compiled/record.py llama --way full --checkpointing --fp8 tensorwise KEY.raw.json
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fake_cuda
import torch
from accelerate.utils.operations import convert_outputs_to_fp32
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM

DIMS = {"B": 3, "S": 1984, "H": 3072, "I": 8704, "N": 24, "M": 6, "D": 160, "V": 50432}
WIDE = ("norm", "embed_tokens", "lm_head")


def sizes(layers: int, rank: int) -> dict[str, int]:
    """Return all dimensions by letter."""
    d = DIMS
    more = {"T": d["B"] * d["S"], "Q": d["N"] * d["D"], "K": d["M"] * d["D"], "G": d["N"] // d["M"], "W": d["D"] // 2}
    return {**d, **more, "E": d["S"] + 1, **({"R": rank} if rank else {})}


def model_of(ask: argparse.Namespace) -> torch.nn.Module:
    """Return the model in the way's dtypes, converted and with its adapter, on the meta device."""
    config = AutoConfig.for_model(
        ask.type,
        hidden_size=DIMS["H"],
        intermediate_size=DIMS["I"],
        num_attention_heads=DIMS["N"],
        num_key_value_heads=DIMS["M"],
        head_dim=DIMS["D"],
        vocab_size=DIMS["V"],
        num_hidden_layers=ask.layers,
        tie_word_embeddings=ask.tied,
        attn_implementation="sdpa",
        use_cache=False,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.train()
        if ask.way == "lora":
            from peft import LoraConfig, get_peft_model

            for parameter in model.parameters():
                parameter.requires_grad_(False)
            lora = LoraConfig(r=ask.rank, lora_dropout=ask.dropout, target_modules="all-linear", task_type="CAUSAL_LM")
            model = get_peft_model(model, lora)
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.float()
        elif ask.way == "wide":
            model.float()
        elif ask.way == "full":
            for name, module in model.named_modules():
                if any(word in name for word in WIDE) and not list(module.children()):
                    module.float()
        if ask.fp8:
            from accelerate.utils.ao import filter_linear_layers, find_first_last_linear_layers
            from torchao.float8 import Float8LinearConfig, convert_to_float8_training

            ends = list(find_first_last_linear_layers(model))
            recipe = Float8LinearConfig.from_recipe_name(ask.fp8)
            chosen = lambda module, name: filter_linear_layers(module, name, layers_to_filter=ends)  # noqa: E731
            convert_to_float8_training(model, config=recipe, module_filter_fn=chosen)
    if ask.axolotl:
        from axolotl_kernels import patch

        patch(model, ask.axolotl)
    if ask.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    return model


def to_card(model: torch.nn.Module) -> None:
    """Put every parameter and buffer on the fake card; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for group in (module._parameters, module._buffers):
            for name, one in group.items():
                if one is None:
                    continue
                if id(one) not in made:
                    twin = torch.empty(one.shape, dtype=one.dtype, device="cuda")
                    parameter = isinstance(one, torch.nn.Parameter)
                    made[id(one)] = torch.nn.Parameter(twin, requires_grad=one.requires_grad) if parameter else twin
                group[name] = made[id(one)]


def compiled(ask: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Return the names of the inputs of each graph; the wrappers are in `fake_cuda`."""
    inputs: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> object:
        inputs.append([node.name for node in graph.graph.find_nodes(op="placeholder")])
        if ask.whole and len(inputs) < ask.whole:
            return graph.forward
        return compile_fx(graph, examples)

    model = model_of(ask)
    with FakeTensorMode(allow_non_fake_inputs=True):
        to_card(model)
        if not ask.pure:
            wrapped = torch.autocast("cuda", dtype=torch.bfloat16)(model.forward.__func__)
            model.forward = types.MethodType(wrapped, model)
            if ask.way != "lora":
                model.forward = types.MethodType(convert_outputs_to_fp32(model.forward.__func__), model)
        ids = torch.zeros(DIMS["B"], DIMS["S"], dtype=torch.int64, device="cuda")
        given = {"input_ids": ids, "labels": torch.zeros_like(ids)}
        if not ask.unmasked:
            given["attention_mask"] = torch.ones_like(ids)
        if ask.way == "lora":  # PEFT's hook breaks the graph after the embeddings: what follows is compiled
            del given["input_ids"]
            shape = (DIMS["B"], DIMS["S"], DIMS["H"])
            given["inputs_embeds"] = torch.empty(shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        else:
            given["num_items_in_batch"] = torch.ones((), dtype=torch.int64, device="cuda")
        with suppress(fake_cuda.NotRunError):
            torch.compile(model, backend=backend)(**given)
    return inputs, [code for _, code in fake_cuda.wrappers]


def main() -> None:
    """Record one program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("type")
    parser.add_argument("out", type=Path)
    parser.add_argument("--way", choices=("full", "wide", "lora", "pure"), default="full")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--rank", type=int, default=48)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--fp8", default="")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--unmasked", action="store_true")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--axolotl", type=Path, help="its source, for its LoRA kernels")
    parser.add_argument("--whole", type=int, default=0)
    ask = parser.parse_args()
    inputs, codes = compiled(ask)
    ask.out.parent.mkdir(parents=True, exist_ok=True)
    raw = {"inputs": inputs, "codes": codes, "dims": sizes(ask.layers, ask.rank if ask.way == "lora" else 0)}
    ask.out.write_text(json.dumps({**raw, "layers": ask.layers}))


if __name__ == "__main__":
    main()
