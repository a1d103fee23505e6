"""Inductor's wrapper code → a program for any number of layers.

A wrapper allocates each buffer, launches kernels and deletes names; what it does with storages is all that is kept.
Layers repeat: the longest repetitions in which the layer of every weight goes up or down by one become loops. A
storage's end is found by the layer in which it begins.
"""

from __future__ import annotations

import re
from itertools import combinations_with_replacement, count
from math import prod
from typing import Any

NAME = r"[A-Za-z_]\w*"
ITEMS = {
    "_scaled_dot_product_cudnn_attention": ["bfloat16", "float32", *["int64"] * 7],
    "_scaled_dot_product_cudnn_attention_backward": ["bfloat16"] * 3,
}
BYTES = {"float32": 4, "int64": 8, "float64": 8, "int32": 4, "bfloat16": 2, "float16": 2, "uint64": 8}
WHOLE = {"T": "B*S", "Q": "D*N", "K": "D*M"}
LAYER = re.compile(r"layers_modules_(\d+)_")
SKIPPED = r"#|def |args\.clear|with |torch\.cuda|assert_|raw_stream|.* = args$|.*copy_if_misaligned|.*workspace"
Event = tuple[Any, ...]
NUMBERS = count()  # of wrappers: what one makes sorts before what a later one makes


class Wrapper:
    """One wrapper: events on storages, in order; the arguments and the returned storages.

    Where the wrapper reuses a buffer for another of its size, one ends and one begins.
    """

    def __init__(self, source: str, parameters: dict[str, str], arguments: dict[str, Any] | None = None) -> None:
        start = source.find("def call(")
        self.lines = [line.strip() for line in source[start : source.find("\nrunner =", start)].split("\n")]
        self.kernels = dict(re.findall(r"^def (triton_\w+)\((.*?)\):", source, re.M))
        self.kernels |= dict(re.findall(r"\n\s*def (triton_\w+)\(([^)]*)\)", source))
        self.parameters = parameters
        self.at: dict[str, Any] = {}
        self.forms: dict[Any, tuple[tuple[int, ...], str]] = {}
        self.events: list[Event] = []
        self.returned: list[Any] = []
        self.results: dict[str, str] = {}
        self.own: set[Any] = set()  # allocated by a library's kernel, not by the wrapper
        self.count = 0
        self.number = next(NUMBERS)
        head = next(line for line in self.lines if line.endswith(" = args"))
        self.arguments = [one.strip() for one in head.removesuffix(" = args").split(",") if one.strip()]
        for name in self.arguments:
            storage = ("in", name) if arguments is None else arguments.get(name, ("in", name))
            self.at[name] = storage
        given = r"(\w+) = rand_strided\((\(.*?\)), \(.*?\), device='cuda:0', dtype=torch\.(\w+)\)"
        for name, shape, dtype in re.findall(given, source):
            if name in self.at:
                self.forms.setdefault(self.at[name], (eval(shape), dtype))
            if name.startswith("tangents") and eval(shape):  # a gradient of zeros, as autograd makes it
                self.events.append(("new", self.at[name]))
        self.attention: Event | None = None
        for place, line in enumerate(self.lines):
            self._read(line, place)
        self.events = self._with_ends(set((arguments or {}).values()))

    def _with_ends(self, given: set[Any]) -> list[Event]:
        """Return the events with each buffer's end after its last use.

        The wrapper keeps some until another of their size begins, where that raises no peak; in which layer it does so
        depends on what is free there.
        """
        made = {event[1] for event in self.events if event[0] == "new"} | given
        last: dict[Any, int] = dict.fromkeys(given, -1)
        for place, event in enumerate(self.events):
            used = [event[1]] if event[0] == "new" else [*event[3], *event[4]]
            last |= dict.fromkeys([one for one in used if one in made], place)
        held = {*self.returned, *[one for one in made if one[0] == "in"]}
        ends: dict[int, list[Any]] = {}
        for storage, place in last.items():
            if storage not in held:
                ends.setdefault(place, []).append(storage)
        for storages in ends.values():  # in the same order in every layer
            storages.sort(key=lambda one: (prod(self.forms[one][0]) * BYTES.get(self.forms[one][1], 1), one))
        found = [("free", storage) for storage in ends.get(-1, ())]
        for place, event in enumerate(self.events):
            found += [event, *[("free", storage) for storage in ends.get(place, ())]]
        return [*found, *[("free", one) for one in made if one[0] == "in" and one[1].startswith("tangents")]]

    def _new(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        storage = ("s", self.number, self.count)
        self.count += 1
        self.at[name], self.forms[storage] = storage, (shape, dtype)
        self.events.append(("new", storage))

    def _kernel(self, kind: str, names: list[str], outs: list[str], dims: tuple[int, ...] = ()) -> None:
        layers = [LAYER.search(self.parameters.get(name, "")) for name in names]
        layer = next((int(found[1]) for found in layers if found), None)
        reads = [self.at[name] for name in names if name in self.at]
        event = ("kernel", kind, layer, reads, [self.at[name] for name in outs if name in self.at], dims)
        if "attention" in kind and "triton" not in kind:
            self.attention = event  # its workspace comes after its results
        else:
            self.events.append(event)

    def _in_place(self, name: str, place: int) -> bool:
        """Return whether the next kernel that gets a buffer writes over what is in it."""
        for line in self.lines[place + 1 :]:
            if not re.search(rf"\b{name}\b", line):
                continue
            if again := re.match(rf"({NAME}) = reinterpret_tensor\({name}, .*; del {name}\b", line):
                name = again[1]
                continue
            found = re.match(r"(triton_\w+)\.run\((.*)\)$", line)
            return bool(found) and any(slot.startswith("in_out") for slot, _ in self._slots(found, name))
        return False

    def _slots(self, found: re.Match[str], only: str = "") -> list[tuple[str, str]]:
        """Return the arguments of a Triton kernel with the names of their buffers."""
        names = [one for one in split(found[2]) if one in self.at or one.startswith("reinterpret") or one == only]
        names = [re.findall(NAME, one)[1] if one.startswith("reinterpret") else one for one in names]
        slots = [one.strip().split(":")[0] for one in self.kernels.get(found[1], "").split(",")]
        pairs = list(zip(slots, names, strict=False))
        return [pair for pair in pairs if not only or pair[1] == only]

    def _read(self, line: str, place: int) -> None:
        if self.attention is not None and re.match(rf"(del |{NAME} = (?!{NAME}\[))", line):
            self.events.append(self.attention)
            self.attention = None
        if found := re.match(rf"({NAME}) = empty_strided_cuda\((\(.*?\)), \(.*?\), torch\.(\w+)\)$", line):
            self._new(found[1], eval(found[2]), found[3])
        elif found := re.match(rf"({NAME}) = (?:reinterpret_tensor\()?({NAME})\b.*; del ({NAME})", line):
            storage = self.at.pop(found[3])
            if self._in_place(found[1], place):
                self.at[found[1]] = storage
                return
            shape, dtype = self.forms[storage]
            viewed = re.search(r"reinterpret_tensor\(\w+, (\(.*?\)), ", line)
            self._new(found[1], eval(viewed[1]) if viewed else shape, dtype)
        elif (found := re.match(rf"({NAME}) = ({NAME})(?:\[(\d+)\])?$", line)) and found[2] in self.results:
            sign = rf"assert_size_stride\({found[1]}, (\(.*?\)), "
            shape = next((hit[1] for one in self.lines[place + 1 : place + 12] if (hit := re.match(sign, one))), "()")
            kinds = ITEMS.get(self.results[found[2]], ["bfloat16"])
            self._new(found[1], eval(shape), kinds[int(found[3] or 0)])
            self.own.add(self.at[found[1]])
        elif found := re.match(rf"({NAME}) = (?:reinterpret_tensor\(({NAME}), |({NAME})$)", line):
            storage = self.at.get(found[2] or found[3])
            if storage is not None:
                self.at[found[1]] = storage
        elif line.startswith("del "):
            pass
        elif found := re.match(r"return \((.*)\)$", line):
            self.returned = [self._storage(one) for one in split(found[1])]
        elif found := re.match(rf"({NAME}) = (workspace_\d+)\[.*\.view\((\d+), (\d+)\)\.sum\(dim=0\)", line):
            self._new(found[1], (int(found[4]),), "float32")
            self._kernel("sum", [found[2]], [found[1]])
        elif found := re.match(r"extern_kernels\.(\w+)\((.*)\)$", line):
            names = [one for one in re.findall(NAME, found[2]) if one in self.at]
            self._kernel(found[1], names[:-1], names[-1:], product(found[2], self, names))
        elif found := re.match(r"(triton_\w+)\.run\((.*)\)$", line):
            pairs = self._slots(found)
            outs = [name for slot, name in pairs if "out" in slot]
            ins = [name for slot, name in pairs if not slot.startswith("out")]
            self._kernel(re.sub(r"_\d+$", "", found[1]), ins, outs)
        elif found := re.match(rf"({NAME}) = (?:torch\.ops\.\w+\.(\w+)|run_with_rng_state|\w*rng\w*\().*", line):
            kind = re.search(r"(_scaled_dot_product_\w+?|_flash\w+?)\.default", line)
            self.results[found[1]] = kind[1] if kind else found[2]
            names = [one for one in re.findall(NAME, line.partition("(")[2]) if one in self.at]
            self._kernel(self.results[found[1]], names, [])
        elif found := re.match(r"torch\.ops\.\w+\.(\w+)\.\w+\((.*)\)$", line):
            names = [one for one in re.findall(NAME, found[2]) if one in self.at]
            self._kernel(found[1], names, names)
        elif line and not re.match(SKIPPED, line):
            raise SystemExit(f"not understood: {line[:200]}")

    def _storage(self, text: str) -> Any:
        names = [one for one in re.findall(NAME, text) if one in self.at]
        return self.at[names[0]] if names else None


def split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    found, depth, last = [], 0, ""
    for sign in text:
        if sign == "," and not depth:
            found.append(last.strip())
            last = ""
            continue
        depth += (sign == "(") - (sign == ")")
        last += sign
    return [*found, *([last.strip()] if last.strip() else [])]


def product(text: str, wrapper: Wrapper, names: list[str]) -> tuple[int, ...]:
    """Return (batch, m, n, k) of a product, from the shapes of its operands as they are given."""
    shapes = []
    for one in split(text):
        if found := re.match(rf"reinterpret_tensor\({NAME}, (\(.*?\)), ", one):
            shapes.append(eval(found[1]))
        elif one in wrapper.at:
            form = wrapper.forms.get(wrapper.at[one])
            shapes.append(form[0] if form else ())
    matrices = [one for one in shapes[:4] if len(one) >= 2][:2]
    if len(matrices) < 2:
        whole = [one for one in shapes if len(one) >= 2]
        return (1, *whole[-1][-2:], whole[0][-1]) if whole else ()
    left, right = matrices
    return (left[0] if len(left) == 3 else 1, left[-2], right[-1], left[-1])


class Dims:
    """Numbers → products of the model's dimensions."""

    def __init__(self, known: dict[str, int]) -> None:
        self.words: dict[int, str] = {}
        for many in (1, 2, 3):
            for names in combinations_with_replacement(sorted(known), many):
                for factor in (1, 2):
                    value = factor * prod(known[name] for name in names)
                    word = "*".join([*([str(factor)] if factor > 1 else []), *names])
                    self.words.setdefault(value, word)
        for name, value in known.items():
            self.words[value] = name

    def word(self, value: int) -> str:
        """Return a number as a product of dimensions, or itself if it is small or none."""
        return str(value) if value < 3 else self.words.get(value, str(value))

    def form(self, form: tuple[tuple[int, ...], str]) -> str:
        """Return a buffer's bytes as a product; equal ones are written alike."""
        number, letters = BYTES.get(form[1], 1), []
        for side in form[0]:
            for one in self.word(side).split("*"):
                for part in WHOLE.get(one, one).split("*"):
                    if part.isdigit():
                        number *= int(part)
                    else:
                        letters.append(part)
        return "*".join([*([str(number)] if number > 1 or not letters else []), *sorted(letters)])


def signature(event: Event, forms: dict[Any, Any]) -> Any:
    """Return what makes two events alike, whichever layer they belong to."""
    if event[0] == "kernel":
        return (event[0], event[1], event[5], event[2] is not None)
    shape, dtype = forms.get(event[1], ((), ""))
    return (event[0], prod(shape) * BYTES.get(dtype, 1))


def loops(events: list[Event], forms: dict[Any, Any]) -> list[tuple[int, int, int, int]]:
    """Return the repetitions in order: (start, period, times, step of the layers)."""
    signs = [signature(event, forms) for event in events]
    layers = [event[2] if event[0] == "kernel" else None for event in events]

    def best(low: int, high: int) -> tuple[int, int, int, int] | None:
        found, most = None, 0
        for period in range(2, (high - low) // 2 + 1):
            run = low
            for place in range(low, high - period + 1):
                same = place < high - period and signs[place] == signs[place + period]
                if same and layers[place] is not None:
                    same = abs(layers[place + period] - layers[place]) == 1
                if same:
                    continue
                times = (place - run) // period + 1
                steps = {
                    layers[one + period] - layers[one]
                    for one in range(run, run + (times - 1) * period)
                    if layers[one] is not None
                }
                if times > 1 and len(steps) == 1 and times * period > most:
                    most, found = times * period, (run, period, times, steps.pop())
                run = place + 1
        return found

    def search(low: int, high: int) -> list[tuple[int, int, int, int]]:
        one = best(low, high)
        if one is None:
            return []
        return [*search(low, one[0]), one, *search(one[0] + one[1] * one[2], high)]

    return search(0, len(events))


Place = tuple[int, int, int]  # part, offset, layer (0 outside of loops)


class Half:
    """Forward or backward in parts; every event has a place."""

    def __init__(self, wrapper: Wrapper, forms: dict[Any, Any], layers: int) -> None:
        events = wrapper.events
        self.parts: list[dict[str, Any]] = []
        self.places: list[tuple[Place, Event]] = []
        done = 0
        for start, period, times, step in [*loops(events, forms), (len(events), 0, 0, 0)]:
            if start > done:
                self._add(events[done:start], None)
            if not times:
                break
            body = events[start : start + period]
            first = next(event[2] for event in body if event[0] == "kernel" and event[2] is not None)
            last = first + step * (times - 1)
            ends = {"from": min(first, last), "to": layers - 1 - max(first, last), "down": step < 0}
            for turn in range(times):
                layer = first + step * turn
                self._add(events[start + turn * period : start + (turn + 1) * period], layer, new=not turn, ends=ends)
            done = start + times * period

    def _add(self, events: list[Event], layer: int | None, *, new: bool = True, ends: Any = None) -> None:
        if new:
            self.parts.append({"loop": ends, "events": events})
        part = len(self.parts) - 1
        self.places += [((part, offset, layer or 0), event) for offset, event in enumerate(events)]


def program(forward: Wrapper, backward: Wrapper, dims: dict[str, int], layers: int, outputs: int) -> dict[str, Any]:
    """Return the program of a compiled model. Raises SystemExit if its layers cannot be told apart."""
    forms = {**forward.forms, **backward.forms}
    halves = [Half(forward, forms, layers), Half(backward, forms, layers)]
    words = Dims(dims)
    ends: dict[Any, tuple[int, Place]] = {}
    for number, half in enumerate(halves):
        for place, event in half.places:
            if event[0] == "free":
                ends[event[1]] = (number, place)
    begun: dict[tuple[int, int, int], list[tuple[int, Any]]] = {}
    for number, half in enumerate(halves):
        for (part, offset, layer), event in half.places:
            if event[0] == "new":
                begun.setdefault((number, part, offset), []).append((layer, event[1]))
    kept = {storage: (number, place) for storage, (number, place) in ends.items()}
    table: dict[str, int] = {}

    def word(text: str) -> int:
        return table.setdefault(text, len(table))

    def rule(begin: tuple[int, int, int], found: list[tuple[int, Any]]) -> Any:
        looped = halves[begin[0]].parts[begin[1]]["loop"] is not None
        rows = []
        for layer, storage in found:
            end = kept.get(storage)
            if end is None:
                rows.append(("out",))
                continue
            half, (part, offset, other) = end
            goal = halves[half].parts[part]["loop"]
            if goal is None:
                rows.append(("at", half, part, offset))
            elif looped:
                rows.append(("in", half, part, offset, other - layer))
            else:
                low = other - goal["from"] <= (layers - 1 - goal["to"]) - other
                rows.append(("low" if low else "high", half, part, offset, other if low else layers - 1 - other))
        if not looped:
            return rows[0]
        common = max(rows, key=lambda row: (rows.count(row), row[0] == "in"))
        odd = {}
        lows = [layer for layer, _ in found]
        for (layer, _), row in zip(found, rows, strict=True):
            if row != common:
                key = f"+{layer}" if layer - min(lows) <= max(lows) - layer else f"-{layers - 1 - layer}"
                odd[key] = list(row)
        return [*common, odd] if odd else common

    def kernel(event: Event) -> Any:
        moved = [[word(words.form(forms[one])) for one in group if one in forms] for group in event[3:5]]
        return [word(event[1]), *moved, [word(words.word(side)) for side in event[5]]]

    out: dict[str, Any] = {"halves": []}
    for number, half in enumerate(halves):
        parts = []
        for index, part in enumerate(half.parts):
            rows: list[Any] = []
            for offset, event in enumerate(part["events"]):
                if event[0] == "new":
                    found = begun[number, index, offset]
                    own = "!" if event[1] in {*forward.own, *backward.own} else ""
                    own = "in!" if event[1][0] == "in" else own
                    size = f"{words.form(forms[event[1]])}:{forms[event[1]][1]}{own}"
                    rows.append([word(size), list(rule((number, index, offset), found))])
                elif event[0] == "free":
                    rows.append(0)
                else:
                    rows.append(kernel(event))
            parts.append({"loop": part["loop"], "rows": rows})
        out["halves"].append(parts)
    out["words"] = list(table)
    out["gradients"] = gradients(forward, backward, halves[1], layers)
    born = {event[1]: place for place, event in halves[0].places if event[0] == "new"}
    out["returns"] = []
    for storage in forward.returned[:outputs]:
        part, offset, layer = born[storage]
        loop = halves[0].parts[part]["loop"]
        high = loop is not None and layer - loop["from"] > (layers - 1 - loop["to"]) - layer
        out["returns"].append([part, offset, layers - 1 - layer if high else layer, high])
    return out


def gradients(forward: Wrapper, backward: Wrapper, half: Half, layers: int) -> list[Any]:
    """Return where each parameter's gradient is made: its name without a layer, and the place of its storage."""
    born = {event[1]: place for place, event in half.places if event[0] == "new"}
    found: dict[str, list[tuple[int | None, list[Any]]]] = {}
    for name, storage in zip(forward.arguments, backward.returned, strict=False):
        text = forward.parameters.get(name)
        if storage is None or text is None or storage not in born:
            continue
        layer = LAYER.search(text)
        part, offset, other = born[storage]
        number = None if layer is None else int(layer[1])
        row = [part, offset, None if number is None else other - number]
        found.setdefault(LAYER.sub("layers_modules_", text), []).append((number, row))
    rows = []
    for key, group in found.items():
        every = [row for _, row in group]
        common = max(every, key=every.count)
        odd = {}
        for number, row in group:
            if row != common and number is not None:
                odd[f"+{number}" if number < layers / 2 else f"-{layers - 1 - number}"] = row
        rows.append([key, common, odd])
    return rows
