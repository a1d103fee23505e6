"""Builds a model from its config, runs it forward and backward on fake tensors, and cuts the pass at its layers."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from vramwise.models.recorder.attending import ATTENTION, attention_noted, register_attention
from vramwise.models.recorder.autocast import follow_cuda
from vramwise.models.recorder.cutting import Cut, Layers, Lost
from vramwise.models.recorder.opaque import Calls
from vramwise.models.recorder.recorder import Raw, Recorder


class Traced(NamedTuple):
    """The instructions of a forward pass, the layers' cuts, and the name of the input ids."""

    instructions: list[Raw]
    cuts: list[Cut]
    ids: str
    mask: str  # "eager" or "masked" if the code always needs a mask, otherwise empty
    exchange: bool  # whether layers receive tensors made after the first layer began


def build(config: Any, dtype: torch.dtype, own: Any = None) -> Any:
    """Build the model in training mode, with uninitialised weights. `own`: its class, if it ships its own code."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    register_attention()
    torch.distributions.Distribution.set_default_validate_args(False)  # validation would read values
    make = AutoModelForCausalLM.from_config if own is None else own._from_config
    kind = own or AutoModelForCausalLM._model_mapping.get(type(config), None)
    fused = getattr(kind, "_supports_sdpa", True)
    with no_init_weights():
        try:
            model = make(config, dtype=dtype, attn_implementation=ATTENTION if fused else "eager")
        except (KeyError, ValueError) as error:  # the model has its own attention: torch's call, or recorded op by op
            if own is None and not isinstance(error, KeyError):
                raise
            try:
                model = make(config, dtype=dtype, attn_implementation="sdpa")
            except (KeyError, ValueError):
                model = make(config, dtype=dtype, attn_implementation="eager")
    model.tie_weights()  # skipped when a model is built without values
    return model.train()


def warm_up() -> None:
    """Trace a small model so that torch and transformers load what they load on first use, before the lock."""
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
    """Return the list of layers and its name. Raises Lost if the model has no list of modules.

    This is the largest list with `count` entries, or the largest list of all if none has that many.
    """
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
    """Run the model forward and backward once and return the recorded forward pass.

    `way` says which weights need gradients:

    - "all": all weights.
    - "frozen": none, as under an adapter; the output of the embeddings needs one instead.
    - "experts": only the weights named in `experts`; the output of the embeddings needs one too.
    - "wide": like "frozen", with linear layers that return fp32, as DoRA does on a quantised base under autocast.
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
    """Return the names of the weights of all linear modules except the head."""
    head = model.get_output_embeddings()
    found = [name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear) and one is not head]
    return frozenset(f"p:{name}.weight" for name in found)


def _marked(recorder: Recorder, model: Any, experts: frozenset[str]) -> list[Any]:
    """Record where modules with expert weights begin and end: an adapter on the weights is applied there."""
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
    """Make the embeddings' output require a gradient, as PEFT's hook does, and record it."""
    recorder.resolve()
    recorder.instructions.append({"k": "wants", "i": [recorder.name(out)], "o": [], "x": []})
    out.requires_grad_(True)
