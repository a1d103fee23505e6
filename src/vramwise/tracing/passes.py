"""One pass of a model on fake tensors: built from its config, run forward and backward, cut at its layers."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from vramwise.tracing.attending import ATTENTION, attention_noted, register_attention
from vramwise.tracing.autocast import follow_cuda
from vramwise.tracing.cutting import Cut, Layers, Lost
from vramwise.tracing.opaque import Calls
from vramwise.tracing.recorder import Raw, Recorder


class Traced(NamedTuple):
    """All instructions of a pass, the layers' cuts, and the names of what the head was given and gave."""

    instructions: list[Raw]
    cuts: list[Cut]
    ids: str
    mask: str  # "eager" or "masked", where the code works on a mask that is made in any case; else empty
    exchange: bool  # whether layers are given what was made after the first had begun


def build(config: Any, dtype: torch.dtype, own: Any = None) -> Any:
    """The model on fake tensors; its weights have no values. `own`: its class, where its code came with it."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    register_attention()
    torch.distributions.Distribution.set_default_validate_args(False)  # which would ask for values
    make = AutoModelForCausalLM.from_config if own is None else own._from_config
    kind = own or AutoModelForCausalLM._model_mapping.get(type(config), None)
    fused = getattr(kind, "_supports_sdpa", True)
    with no_init_weights():
        try:
            model = make(config, dtype=dtype, attn_implementation=ATTENTION if fused else "eager")
        except (KeyError, ValueError) as error:  # attention of its own: torch's call, or recorded op by op
            if own is None and not isinstance(error, KeyError):
                raise
            try:
                model = make(config, dtype=dtype, attn_implementation="sdpa")
            except (KeyError, ValueError):
                model = make(config, dtype=dtype, attn_implementation="eager")
    model.tie_weights()  # building without values leaves it out
    return model.train()


def warm_up() -> None:
    """Have torch and transformers load what they load at first use, as long as they may."""
    from transformers import LlamaConfig

    small = LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
        vocab_size=64, max_position_embeddings=512,
    )  # fmt: skip
    mode = FakeTensorMode()
    with mode:
        model = build(small, torch.bfloat16)
    _, layers = layers_of(model, 1)
    run_pass(model, mode, layers, {0}, rows=2, tokens=64, amp=True)


def layers_of(model: Any, count: int) -> tuple[str, Any]:
    """The list of layers, by its name: the largest list that has as many entries as the config says layers, or the
    largest one where the config counts them otherwise."""
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)]
    found = [item for item in lists if len(item[1]) == count] or [item for item in lists if len(item[1])]
    if not found:
        raise Lost("its layers are not in a list")
    return max(found, key=lambda item: sum(one.numel() for one in item[1].parameters()))


def run_pass(
    model: Any,
    mode: FakeTensorMode,
    layers: Any,
    running: set[int],
    *,
    rows: int,
    tokens: int,
    amp: bool,
    way: str = "all",
    experts: frozenset[str] = frozenset(),
) -> Traced:
    """Forward and backward once.

    `way`: which weights want gradients: all, none ("frozen", as under an adapter, where the embeddings want one
    instead), or those of experts alone ("experts", whose names are given). "wide" is "frozen" with linear layers that
    give fp32, as DoRA makes them on a quantised base under autocast.
    """
    recorder = Recorder(frozenset(f"p:{name}" for name in experts))
    frozen = way != "all"
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(way == "all" or (way == "experts" and name in experts))
        parameter.grad = None
        recorder.keep(parameter, f"p:{name}")
    for name, buffer in model.named_buffers():
        recorder.keep(buffer, f"b:{name}")
    recorder.amp = amp
    if way == "wide":
        recorder.wide = _linear_weights(model)
    if amp:
        follow_cuda()
    cut = Layers(recorder, layers, running)
    table = model.get_input_embeddings()
    hooks = [table.register_forward_hook(partial(_wants_gradient, recorder))] if frozen else []
    hooks += _marked(recorder, model, experts)
    try:
        with mode, ExitStack() as stack:
            ids = torch.empty((rows, tokens), dtype=torch.int64)
            noted = stack.enter_context(attention_noted(recorder, rows, tokens))
            stack.enter_context(Calls(recorder))
            stack.enter_context(recorder)
            name = recorder.name(ids)
            # trainers call backward outside of autocast
            cast = torch.autocast("cpu", dtype=torch.bfloat16) if amp else nullcontext()
            with saved_tensors_hooks(recorder.pack, recorder.unpack), cast:
                logits = model(input_ids=ids, use_cache=False).logits
                recorder.resolve()
            forward = len(recorder.instructions)
            recorder.in_backward = True
            recorder.paused += 1
            grad = torch.empty_like(logits)
            recorder.paused -= 1
            logits.backward(grad)
    finally:
        cut.restore()
        for hook in hooks:
            hook.remove()
    return Traced(recorder.instructions[:forward], cut.cuts, name, noted.always, cut.exchange)


def _linear_weights(model: Any) -> frozenset[str]:
    """The weights of linear modules besides the head."""
    head = model.get_output_embeddings()
    found = [name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear) and one is not head]
    return frozenset(f"p:{name}.weight" for name in found)


def _marked(recorder: Recorder, model: Any, experts: frozenset[str]) -> list[Any]:
    """Note where modules that own experts' weights begin and end: there an adapter on the weights is put in place."""
    found = []
    for name, module in model.named_modules():
        mine = [f"p:{name}.{leaf}" for leaf, _ in module.named_parameters(recurse=False) if f"{name}.{leaf}" in experts]
        if mine:

            def note(kind: str, names: list[str], *_: Any) -> None:
                recorder.resolve()
                recorder.instructions.append({"k": kind, "i": names, "o": [], "x": []})

            found.append(module.register_forward_pre_hook(partial(note, "enter", mine)))
            found.append(module.register_forward_hook(partial(note, "leave", mine)))
    return found


def _wants_gradient(recorder: Recorder, module: Any, args: Any, out: torch.Tensor) -> None:
    """As PEFT's hook on the embeddings, which may be scaled inside of their module."""
    recorder.resolve()
    recorder.instructions.append({"k": "wants", "i": [recorder.name(out)], "o": [], "x": []})
    out.requires_grad_(True)
