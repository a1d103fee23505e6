"""Reads a training loop of a script's own, plain or with accelerate: its model, optimizer, loader and precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import Called, Missing, Result, Value, plain
from vramwise.documents.python.scopes import Index
from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.collected import Found
from vramwise.trainers.scripts.training import Training

_LOADS = ("from_pretrained", "from_config")
# Optimizers by the names that TrainingArguments uses. torch's own pick the foreach implementation.
OPTIMIZERS: Mapping[str, str] = {
    "AdamW": "adamw_torch",
    "Adam": "adamw_torch",
    "Adafactor": "adafactor",
    "SGD": "sgd",
    "Adagrad": "adagrad",
    "RMSprop": "rmsprop",
    "AdamWScheduleFree": "schedule_free_adamw",
    "AdamW8bit": "adamw_8bit",
    "Adam8bit": "adamw_8bit",
    "PagedAdamW": "paged_adamw_32bit",
    "PagedAdamW32bit": "paged_adamw_32bit",
    "PagedAdamW8bit": "paged_adamw_8bit",
    "Lion": "lion_32bit",
    "Lion8bit": "lion_8bit",
    "PagedLion": "paged_lion_32bit",
    "PagedLion8bit": "paged_lion_8bit",
}
_READ_AS = "no Trainer runs it: its steps are taken for those of transformers' Trainer"


def is_loop(found: Index) -> bool:
    """Return whether a source runs backward passes and steps of an optimizer itself."""
    methods = {call.func.attr for call, _ in found.calls if isinstance(call.func, ast.Attribute)}
    return {"backward", "step"} <= methods


def loop_of(found: Index, evaluator: Evaluator) -> Found | None:
    """Return the call that loads the model of a loop, as the loop's training; None if there is none or no loop."""
    if not is_loop(found):
        return None
    for call, site in sorted(found.calls, key=lambda one: one[0].lineno):
        owner, _, last = evaluator.called(call, site).rpartition(".")
        kind = owner.rpartition(".")[2]
        if last in _LOADS and ("Model" in kind or "For" in kind) and "Peft" not in kind:
            return Found(call=call, site=site, name="a loop of its own", trainer=calls.TRAINERS["Trainer"][0], kind="")
    return None


class Loop(Training):
    """Reads one loop. What it leaves open is 1 batch a step, of 1 row, without autocast."""

    __slots__ = ()

    def read(self) -> None:
        """Read the calls of the source that decide what a step does."""
        found = self.found
        owner = self.evaluator.called(found.call, found.site).rpartition(".")[0].rpartition(".")[2]
        called = Called(name=f"{owner}.from_pretrained", node=found.call, site=found.site)
        positional, named, _ = self.evaluator.arguments(called)
        self.read_loaded(called, owner, positional, named)
        self.put("max_grad_norm", 0.0)
        for last, arguments in self._calls():
            if last == "Accelerator":
                self._set("gradient_accumulation_steps", arguments.get("gradient_accumulation_steps"))
                self._precision(arguments.get("mixed_precision"))
            elif last == "autocast":
                self._precision(arguments.get("dtype", Value(value="float16", node=None)))
            elif last == "DataLoader":
                self._set("per_device_train_batch_size", arguments.get("batch_size"))
            elif last == "get_peft_model" and "peft_config" in arguments:
                self.read_adapter(arguments["peft_config"])
            elif last in ("clip_grad_norm_", "clip_grad_value_"):
                self.values["max_grad_norm"] = 1.0
            elif last in OPTIMIZERS:
                self.put("optim", OPTIMIZERS[last])
        self.put("optim", "adamw_torch")
        self.put("per_device_train_batch_size", 1)
        self.read_methods()
        self._length()
        self.assume("the loop", _READ_AS)

    def _calls(self) -> Iterator[tuple[str, Mapping[str, Result]]]:
        for call, site in sorted(self.evaluator.found.calls, key=lambda one: one[0].lineno):
            last = self.evaluator.called(call, site).rpartition(".")[2]
            positional, named, _ = self.evaluator.arguments(Called(name=last, node=call, site=site))
            if last in ("DataLoader", "get_peft_model") and len(positional) > 1:
                named.setdefault("batch_size" if last == "DataLoader" else "peft_config", positional[1])
            yield last, named

    def _set(self, key: str, result: Result | None) -> None:
        if result is not None and key not in self.values:
            self.add(key, result)

    def _precision(self, result: Result | None) -> None:
        held = None if result is None else plain(result)
        if held is None or isinstance(held, Missing):
            return
        for key, names in (("bf16", ("bf16", "bfloat16")), ("fp16", ("fp16", "float16"))):
            if held.value in names and not {"bf16", "fp16"} & self.values.keys():
                self.values[key] = True
