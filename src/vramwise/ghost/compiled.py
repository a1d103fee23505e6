"""A whole model under `torch.compile`: what Inductor's code allocates and launches, in its own order.

A program is read from the code that Inductor writes for a model of some layers (`scripts/compiled`): buffers as
products of the model's dimensions, and loops over layers. Replaying it allocates each buffer as a block of its own, as
the compiled code does, and frees it after its last use; buffers that backward needs go from one half to the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from vramwise.ghost.dtypes import BF16, FP8, FP32
from vramwise.ghost.model.causal_lm import wanting_grad
from vramwise.ghost.ops.loss import embedding
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor
from vramwise.ghost.weights import Weights
from vramwise.models.compiled import Program
from vramwise.types import ModelSpec

Place = tuple[int, int, int, int]  # half, part, row, layer
_PRODUCTS = {"mm": BF16, "bmm": BF16, "addmm": BF16, "_scaled_mm": FP8}
_SIZE = re.compile(r"(\d+|[A-Z])(\*(\d+|[A-Z]))*(:\w+!?)?")
_EMBEDDINGS, _LEAF = "model.embed_tokens.weight", "l_kwargs_inputs_embeds_"
_ATTENTION = "_scaled_dot_product_cudnn_attention"


class Launch(NamedTuple):
    """A kernel: its name, the bytes that it reads and writes, and the sides of a product."""

    name: str
    read: int
    written: int
    dims: tuple[int, ...]


class Half(NamedTuple):
    """Forward or backward: (slot, bytes) to allocate, (slot, None) to free, (slot, [other]) to take another's block, or
    (-1, kernel); and the layer of each."""

    steps: tuple[tuple[int, Any], ...]
    layers: tuple[int, ...]


class Expanded(NamedTuple):
    """A program for a number of layers and a batch.

    `gradients`: the slot of each parameter's gradient, by the name in the graph. `returns`: the slots of loss and
    logits.
    """

    halves: tuple[Half, Half]
    gradients: Mapping[str, int]
    returns: tuple[int, ...]
    slots: int


def _number(word: str, dims: Mapping[str, int]) -> int:
    return prod([dims[one] if one in dims else int(one) for one in word.partition(":")[0].split("*")])


def _layers(loop: Mapping[str, Any] | None, layers: int) -> range:
    if loop is None:
        return range(1)
    found = range(loop["from"], layers - loop["to"])
    return found[::-1] if loop["down"] else found


def _end(rule: list[Any], layer: int, layers: int) -> Place | None:
    """Return where a buffer that begins in this layer ends; None: it is handed out."""
    odd = rule[-1] if isinstance(rule[-1], dict) else {}
    rule = odd.get(f"+{layer}") or odd.get(f"-{layers - 1 - layer}") or rule
    how, *place = rule[: 5 if rule[0] in ("in", "low", "high") else 4]
    if how == "out":
        return None
    half, part, row = place[:3]
    other = {"at": 0, "in": layer, "low": 0, "high": layers - 1}[how]
    shift = 0 if how == "at" else place[3]
    return half, part, row, other - shift if how == "high" else other + shift


@lru_cache(maxsize=64)
def expanded(program: Program, layers: int, sides: tuple[tuple[str, int], ...]) -> Expanded:
    """Work out a program."""
    dims = dict(sides)
    numbers = {word: _number(word, dims) for word in program.words if _SIZE.fullmatch(word)}
    ends: dict[Place, list[int]] = {}
    born: dict[Place, int] = {}
    kinds: list[str] = []
    for half, parts in enumerate(program.halves):
        for part, one in enumerate(parts):
            for layer in _layers(one["loop"], layers):
                for row, item in enumerate(one["rows"]):
                    if item and len(item) == 2:
                        slot = born[half, part, row, layer] = len(born)
                        kinds.append(program.words[item[0]])
                        end = _end(item[1], layer, layers)
                        if end is not None:
                            ends.setdefault(end, []).append(slot)
    sizes = [numbers[kind] for kind in kinds]
    halves = []
    for half, parts in enumerate(program.halves):
        steps: list[tuple[int, Any]] = []
        of: list[int] = []
        for part, one in enumerate(parts):
            for layer in _layers(one["loop"], layers):
                for row, item in enumerate(one["rows"]):
                    place = half, part, row, layer
                    if not item:
                        steps += [(slot, None) for slot in ends.get(place, ())]
                    elif len(item) == 2:
                        steps.append((born[place], numbers[kinds[born[place]]]))
                    else:
                        name, reads, writes, sides_of = item
                        moved = [sum([numbers[program.words[word]] for word in group]) for group in (reads, writes)]
                        product = tuple([numbers[program.words[word]] for word in sides_of])
                        steps.append((-1, Launch(program.words[name], moved[0], moved[1], product)))
                    of += [layer if one["loop"] else -1] * (len(steps) - len(of))
        planned = zip(_reusing(steps, kinds, sizes), of, strict=True)
        kept = [(step, layer) for step, layer in planned if step[0] != -2]
        halves.append(Half(tuple([step for step, _ in kept]), tuple([layer for _, layer in kept])))
    gradients: dict[str, int] = {}
    for key, row, odd in program.gradients:
        for layer in range(layers) if row[2] is not None else (0,):
            part, offset, shift = odd.get(f"+{layer}") or odd.get(f"-{layers - 1 - layer}") or row
            loop = program.halves[1][part]["loop"]
            place = 1, part, offset, 0 if loop is None else layer + (shift or 0)
            gradients[_key(key).replace("layers_modules_", f"layers_modules_{layer}_", 1)] = born[place]
    returns = [born[0, part, row, layers - 1 - layer if high else layer] for part, row, layer, high in program.returns]
    return Expanded((halves[0], halves[1]), gradients, tuple(returns), len(born))


def _reusing(steps: Sequence[tuple[int, Any]], kinds: Sequence[str], sizes: Sequence[int]) -> list[tuple[int, Any]]:
    """Give buffers that begin the blocks of freed ones, as Inductor does (`AllocateLine.plan`, torch 2.13).

    The last freed of its dtype and size, if it was freed right before, or if holding it until then does not raise the
    peak that Inductor expects, in which weights and the gradients of outputs do not count. A step that is left out
    becomes (-2, None).
    """
    made = {slot for slot, what in steps if slot >= 0 and what is not None}
    counted = [0 if kind.endswith("in!") else size for kind, size in zip(kinds, sizes, strict=True)]
    peaks: list[int] = []  # while each kernel runs
    now = sum([counted[slot] for slot, what in steps if slot >= 0 and what is None and slot not in made])
    for slot, what in steps:
        if slot < 0:
            peaks.append(now)
        else:
            now += counted[slot] * (-1 if what is None else 1)
    highest = max(peaks, default=0)
    pool: dict[str, list[tuple[int, int, int]]] = {}
    found: list[tuple[int, Any]] = []
    kernel = 0
    for slot, what in steps:
        found.append((slot, what))
        if slot < 0:
            kernel += 1
        elif what is None:
            if slot in made:
                pool.setdefault(kinds[slot].rstrip("!"), []).append((slot, kernel - 1, len(found) - 1))
        elif free := pool.get(kinds[slot]):
            other, since, place = free[-1]
            if since + 1 == kernel or what + max(peaks[since + 1 : kernel]) <= highest:
                free.pop()
                peaks[since + 1 : kernel] = [peak + what for peak in peaks[since + 1 : kernel]]
                found[place] = (-2, None)
                found[-1] = (slot, [other])
    return found


class CompiledModel:
    """The model and its loss as one compiled graph; with adapters, all but the embeddings and the cast of logits."""

    def __init__(self, program: Program, weights: Weights) -> None:
        self.program = program
        self.weights = weights
        self.adapted = weights.run.adapter.kind is not None

    def __call__(self, t: Tape, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the logits."""
        model, (rows, width) = self.weights.model, ids.shape
        sides = dimensions(model, rows, width, self.weights.run.adapter.lora_r or 0)
        whole = expanded(self.program, model.num_hidden_layers, tuple(sides.items()))
        found = {_in_graph(one.name): one for one in self.weights.trainable()}
        trained: list[tuple[Tensor, int]] = [
            (one, whole.gradients[name]) for name, one in found.items() if name in whole.gradients
        ]
        if self.adapted:  # PEFT's hook ends the graph after the embeddings, and makes them a leaf
            t.mark("activations", "embeddings")
            leaf = wanting_grad(embedding(t, self.weights.by_name[_EMBEDDINGS], ids))
            t.graph_holds.append(leaf)
            trained.append((leaf, whole.gradients[_LEAF]))
        slots: list[Storage | None] = [None] * whole.slots
        _replay(t, whole.halves[0], slots, sides)
        loss, logits = [slots[slot] for slot in whole.returns]
        for slot in whole.returns:
            slots[slot] = None
        out = Tensor(loss, (), 1, FP32)
        out.node = t.node(_backward, tuple([one for one, _ in trained]), ())
        out.node.extra = whole, slots, [(one.shape, one.numel, one.dtype, slot) for one, slot in trained], sides
        shape = (rows, width, model.vocab_size)
        return out, Tensor(logits, shape, prod(shape), BF16 if self.adapted else FP32)


def dimensions(model: ModelSpec, rows: int, width: int, rank: int) -> dict[str, int]:
    """Return the sides that programs are written in, by letter."""
    heads, groups, width_of = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    return {
        "B": rows,
        "S": width,
        "E": width + 1,
        "T": rows * width,
        "H": model.hidden_size,
        "I": model.intermediate_size,
        "N": heads,
        "M": groups,
        "G": heads // groups,
        "D": width_of,
        "W": width_of // 2,
        "Q": heads * width_of,
        "K": groups * width_of,
        "V": model.vocab_size,
        "R": rank,
    }


def _in_graph(name: str) -> str:
    """Return a parameter's key: its path as a graph spells it, from the layers on, or its last module."""
    *path, last = name.lower().split(".")
    if last.startswith("lora_"):
        path, last = [*path, last, "default"], "weight"
    return _key(f"_modules_{'_modules_'.join(path)}_parameters_{last}_")


def _key(text: str) -> str:
    _, layers, rest = text.partition("_layers_modules_")
    return layers[1:] + rest if layers else text.rpartition("_modules_")[2]


def _replay(t: Tape, half: Half, slots: list[Storage | None], sides: Mapping[str, int]) -> None:
    last, category = -2, "temporary" if t.in_backward else "activations"
    for (slot, what), layer in zip(half.steps, half.layers, strict=True):
        if layer != last:
            last = layer
            t.mark(category, f"layers.{layer}: compiled" if layer >= 0 else "compiled code")
        if slot < 0:
            _launch(t, what, sides)
        elif isinstance(what, list):
            slots[slot], slots[what[0]] = slots[what[0]], None
        else:
            slots[slot] = None if what is None else Storage(t, what)


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    whole, slots, trained, sides = node.extra
    _replay(t, whole.halves[1], slots, sides)
    return tuple([Tensor(slots[slot], shape, numel, dtype) for shape, numel, dtype, slot in trained])


def _launch(t: Tape, launch: Launch, sides: Mapping[str, int]) -> None:
    """Make a library's workspaces, and list the kernel."""
    name, backward = launch.name, launch.name.endswith("_backward")
    if name == "_scaled_mm":
        t.bias_workspace()
    elif name in _PRODUCTS:
        t.workspace()
    elif name.startswith(_ATTENTION):
        tokens, heads = sides["B"] * sides["S"], sides["N"]
        Storage(t, tokens * heads * (4 + 4 * sides["D"]) + 256 if backward else 256)
    if t.work is None:
        return
    if name in _PRODUCTS:
        batch, *rest = launch.dims
        product = t.work.product(None, *rest, batch=batch, dtype=_PRODUCTS[name])
        product.adds, product.by = False, "forward"
    elif name.startswith(_ATTENTION):
        q = Tensor(None, (sides["B"], sides["N"], sides["S"], sides["D"]), sides["T"] * sides["Q"], BF16)
        t.work.attention((), q, q, backward=backward, causal=False, cudnn=True)
    else:
        # Inductor's own launcher: a call from Python, without Triton's
        t.work.stream(launch.read, launch.written, "triton").by = "forward"
