"""Runs a recorded program on the tape: it makes, saves and frees tensors in the recorded order.

Registers hold tensors as the code's variables did, and a `del` step frees one. Local variables here must not hold a
tensor beyond the step that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.mixers.latent import attended
from vramwise.ghost.model.kernels import Kernel, tokens_first, undeclared_groups
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.attention import fused_attention
from vramwise.ghost.ops.elementwise import dropout, without_node
from vramwise.ghost.ops.loss import embedding
from vramwise.ghost.ops.reduce import staging_bytes
from vramwise.ghost.ops.routing import accumulation_buffers, grouped_buffers, sort_buffers
from vramwise.ghost.tape import Grads, Node, Parameter, Storage, Tape, Tensor
from vramwise.ghost.traced.folding import Folding
from vramwise.ghost.traced.program import Back, Gradient, Program, Result, Step

Registers = list[Tensor | None]
# called with the embeddings; may make them require a gradient
Hook = Callable[[Tensor], Tensor]


def run(
    t: Tape,
    program: Program,
    given: Sequence[Tensor | None],
    parameters: Sequence[Tensor | None],
    projections: Sequence[Projection | None],
    *,
    kernel: Kernel | None = None,
    mask: Tensor | None = None,
    hook: Hook | None = None,
    halfway: Callable[[], None] | None = None,
    masks: Callable[[], None] | None = None,
    folding: Folding | None = None,
) -> Registers:
    """Run a program and return all its registers.

    `projections`: the linear layers, in the order of the parameters that are their weights. `masks`: called where the
    code makes its masks. `halfway`: called where the block's second part begins.
    """
    registers: Registers = [*given, *parameters]
    registers += [None] * (program.registers - len(registers))
    first = program.given
    for place, step in enumerate(program.steps):
        if place == program.second_part and halfway is not None:
            halfway()
        kind = step.kind
        if kind == "del":
            registers[step.inputs[0]] = None
        elif kind == "mask":
            if masks is not None:
                masks()
        elif kind == "wants":
            if hook is not None:
                registers[step.inputs[0]] = _hooked(hook, registers[step.inputs[0]])
        elif kind == "op":
            if folding is not None:
                folding.use(registers, step.inputs)
            _op(t, step, registers)
        elif kind in ("enter", "leave"):
            if folding is not None:
                folding.mark(registers, step.inputs, entered=kind == "enter")
        elif kind == "linear":
            layer = projections[step.inputs[1] - first]
            assert layer is not None
            registers[step.results[0].register] = _shaped(_call(t, layer, registers, step.inputs[0]), step.results[0])
        elif kind == "attention":
            assert kernel is not None
            registers[step.results[0].register] = _attend(t, kernel, registers, step, mask)
        elif kind != "window":
            registers[step.results[0].register] = _named(t, step, registers)
    return registers


def _hooked(hook: Hook, x: Tensor | None) -> Tensor:
    assert x is not None
    return hook(x)


def _call(t: Tape, layer: Projection, registers: Registers, place: int) -> Tensor:
    x = registers[place]
    assert x is not None
    return layer(t, x)


def _shaped(out: Tensor, form: Result) -> Tensor:
    """Return the result of one of the ghost run's own ops in the recorded shape."""
    if out.shape == form.shape:
        out.heads_first = form.heads_first
        return out
    twin = Tensor(out.storage, form.shape, out.numel, out.dtype)
    twin.node, twin.slot, twin.view, twin.heads_first = out.node, out.slot, out.view, form.heads_first
    return twin


def _attend(t: Tape, kernel: Kernel, registers: Registers, step: Step, mask: Tensor | None) -> Tensor:
    query, key, value = [registers[place] for place in step.inputs[:3]]
    assert query is not None
    assert key is not None
    assert value is not None
    if step.more.get("masked"):  # the model's own mask
        mask = registers[step.inputs[3]]
    if step.more.get("grouped"):
        out = tokens_first(t, fused_attention(t, query, key, value, mask))
    else:
        out, _weights = attended(t, kernel, query, key, value, mask)
    split = _shaped(out, step.results[0])
    if out.node is not None and t.grad_enabled:
        split.node, split.slot = t.node(_joined, (out,), ()), 0
        split.node.extra = out.shape
    return split


def _joined(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return the gradient of split heads as one of whole rows, which is what the kernel's ops expect."""
    out = Tensor(grad.storage, node.extra, grad.numel, grad.dtype)
    out.view = True
    return (out,)


def _named(t: Tape, step: Step, registers: Registers) -> Tensor:
    given = [registers[place] for place in step.inputs]
    first = given[0]
    assert first is not None
    if step.kind == "embedding":
        weight = given[1]
        assert isinstance(weight, Parameter)
        return embedding(t, weight, first)
    if step.kind == "dropout":
        return dropout(t, first, step.more["rate"])
    key, value = given[1], given[2]
    assert key is not None
    assert value is not None
    attend = fused_attention if step.more.get("grouped") else undeclared_groups
    return _shaped(attend(t, first, key, value, given[3] if len(given) > 3 else None), step.results[0])


def _op(t: Tape, step: Step, registers: Registers) -> None:
    made = [_result(t, form, registers) for form in step.results]
    if step.flags and made:
        _besides(t, step.flags, made[0].numel, made[0].dtype)
    back = step.back
    if back is not None and t.grad_enabled:
        inputs = [None if place is None else registers[place] for place in back.edges]
        if any(one is not None and one.node is not None for one in inputs):
            nothing = Tensor(None, (), 0, made[0].dtype)
            given = tuple([nothing if one is None else one for one in inputs])
            node = t.node(_backward, given, tuple([_saved(place, step, registers, made) for place in back.saved]))
            node.extra = back
            for out, slot in zip(made, step.slots, strict=True):
                out.node, out.slot = node, slot
    for form, out in zip(step.results, made, strict=True):
        registers[form.register] = out


def _result(t: Tape, form: Result, registers: Registers) -> Tensor:
    source = None if form.source is None else registers[form.source]
    if source is None:
        out = t.new(form.shape, form.dtype)
    else:
        out = Tensor(source.storage, form.shape, form.numel, form.dtype)
        out.view = True
    out.heads_first = form.heads_first
    return out


def _saved(place: int, step: Step, registers: Registers, made: list[Tensor]) -> Tensor | None:
    return without_node(made[-1 - place]) if place < 0 else registers[step.inputs[place]]


def _besides(t: Tape, flags: tuple[Any, ...], numel: int, dtype: DType) -> None:
    """Allocate the extra memory of a GPU kernel, such as a product's workspace or the buffers of a split sum."""
    if not flags:
        return
    if flags[0] == "mm":
        t.workspace()
    elif flags[0] == "addmm":
        t.bias_workspace()
    elif flags[0] == "grouped":
        grouped_buffers(t, flags[1], dtype)
    elif flags[0] == "sort":
        sort_buffers(t, flags[1])
    elif flags[0] == "accumulate":
        accumulation_buffers(t, flags[1])
    elif flags[0] == "sum" and numel:
        buffer, semaphores = staging_bytes(numel, flags[1], along_rows=bool(flags[2]), hardware=t.hardware)
        if buffer:
            held = Storage(t, buffer)
            Storage(t, semaphores)
            del held


def _backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    back: Back = node.extra
    if len(back.gradients) < len(node.edges):
        raise VramwiseError("the trace does not follow a gradient of this model: it cannot be predicted by its trace")
    got = list(grads) if isinstance(grads, list) else [grads]
    del grads
    if back.is_view and got[0] is not None and got[0].heads_first != back.received[0]:
        return _viewed(t, back, got[0])
    got += [None] * (len(back.received) - len(got))
    made: list[Tensor | None] = []
    for step in back.steps:
        if step[0] == "del":
            made[step[1]] = None
            continue
        if step[0] == "use":
            _besides(t, step[1], 0, FP32)
            continue
        out = t.new(step[2], step[1])
        made.append(out)
        if step[3] and step[3][0] == "twice":
            t.like(out)
        else:
            _besides(t, step[3], out.numel, out.dtype)
        del out
    return tuple([None if form is None else _handed(t, form, got, made) for form in back.gradients])


def _viewed(t: Tape, back: Back, grad: Tensor) -> Grads:
    """Return the gradient of a view if its memory order differs from the recorded one.

    It is a copy if heads came first in the recording, otherwise a view.
    """
    form = back.gradients[0]
    assert form is not None
    shape = grad.shape if form.how == "same" else form.shape
    if back.received[0]:
        return (t.new(shape, grad.dtype),)
    out = Tensor(grad.storage, shape, grad.numel, grad.dtype)
    out.view = True
    return (out,)


def _handed(t: Tape, form: Gradient, got: Sequence[Tensor | None], made: list[Tensor | None]) -> Tensor | None:
    if form.how == "same":
        return got[form.place]
    if form.how == "own":
        return t.new(form.shape, form.dtype)
    source = got[form.place] if form.how == "in" else made[form.place]
    if source is None:
        return None
    if form.how == "new" and source.shape == form.shape:
        source.heads_first, source.view = form.heads_first, form.view
        return source
    numel = 1
    for side in form.shape:
        numel *= side
    out = Tensor(source.storage, form.shape, numel, form.dtype)
    out.view, out.heads_first = form.view, form.heads_first
    return out
