"""Reads methods that a script calls on a model or on a training's arguments."""

from __future__ import annotations

import ast

from vramwise.documents.python.results import Called
from vramwise.documents.python.scopes import Site
from vramwise.limits.meter import work
from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.chain import Chain, cast_by


class Methods(Chain):
    """Reads methods such as `gradient_checkpointing_enable()`."""

    __slots__ = ()

    def read_set(self, called: Called) -> None:
        """Read `args.set_training(batch_size=…)`."""
        _, named, _ = self.evaluator.arguments(called)
        for argument, key in calls.SETTERS[called.last].items():
            if argument in named:
                self.add(key, named[argument])

    def read_methods(self) -> None:
        """Read the other methods called on the model."""
        for call, site in self.evaluator.found.calls:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name not in calls.METHODS or self.evaluator.holds(site) is False or self._of_another(call, site):
                continue
            called = Called(name=name, node=call, site=site)
            if name == "gradient_checkpointing_enable":
                self._checkpointed(called)
            elif name == "gradient_checkpointing_disable":
                self._not_checkpointed(called)
            elif name == "to" or name in calls.CASTS:
                self._cast_in_place(called)
            elif name in calls.SETTERS and self.found.site.scope is site.scope:
                self.read_set(called)
            elif name == "add_adapter" and "use_peft" not in self.values:
                positional, named, _ = self.evaluator.arguments(called)
                config = named.get("adapter_config", positional[0] if positional else None)
                if isinstance(config, Called) and config.last == "LoraConfig":
                    self.read_adapter(config)
            elif name == "empty_cache":
                self.facts.setdefault("empty_cache", call.lineno)

    def _of_another(self, call: ast.Call, site: Site) -> bool:
        """Return whether a call in the same scope belongs to another training, before or after this one."""
        if site.scope is not self.found.site.scope:
            return False
        home = self.homes.get("model")
        loaded = home.line if home is not None and home.line < self.found.call.lineno else 0
        return not loaded <= call.lineno <= self.found.call.lineno

    def _not_checkpointed(self, called: Called) -> None:
        """Undo checkpointing that a method turned on before; the training's arguments still turn it on."""
        work(len(self.assumed))
        kept = [
            one
            for one in self.assumed
            if not (one.about == "gradient_checkpointing" and one.text.startswith("turned on"))
        ]
        if called.site.order < self.found.site.order:
            self.facts.pop("prepared with checkpointing", None)
        if called.site.order < self.found.site.order and len(kept) < len(self.assumed):
            self.assumed = kept
            self.values.pop("gradient_checkpointing", None)

    def _cast_in_place(self, called: Called) -> None:
        """Read `model.half()` or `model.to(torch.bfloat16)`, which change the dtype in place."""
        home, owner = self.homes.get("model"), called.node.func
        if home is None or called.site.order > self.found.site.order or not isinstance(owner, ast.Attribute):
            return
        model = self.evaluator.evaluate(owner.value, called.site) if isinstance(owner.value, ast.Name) else None
        if not isinstance(model, Called) or model.node.lineno != home.line or model.last != "from_pretrained":
            return
        positional, named, _ = self.evaluator.arguments(called)
        name = cast_by(called.last, positional, named)
        if name is not None and self.values.get("dtype") != name:
            self.values["dtype"] = name
            self.spans.pop(("dtype",), None)
            self.facts.pop("no dtype", None)
            self.assume("dtype", f"changed by the model's method (line {called.node.lineno})")

    def read_frozen(self) -> None:
        """Record the line that freezes weights, in any function of the script; the prediction counts all as trained."""
        if self.values.get("use_peft") or self.is_open("adapter"):
            return
        module = self.evaluator.found.module
        for scope in (module, *module.functions.values(), self.found.site.scope):
            for name, bindings in scope.bindings.items():
                if not name.endswith(".requires_grad"):
                    continue
                for value in (one.value for one in bindings):
                    if isinstance(value, ast.Constant) and value.value is False:
                        self.facts.setdefault("weights frozen", value.lineno)
        for call, _ in self.evaluator.found.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_" and _is_false(call):
                self.facts.setdefault("weights frozen", call.lineno)

    def _checkpointed(self, called: Called) -> None:
        positional, named, _ = self.evaluator.arguments(called)
        if positional:
            named.setdefault("gradient_checkpointing_kwargs", positional[0])
        if not self.values.get("gradient_checkpointing"):
            self.values["gradient_checkpointing"] = True
            line = called.node.lineno
            self.assume("gradient_checkpointing", f"turned on by the model's method (line {line})")
        if "gradient_checkpointing_kwargs" in named and "gradient_checkpointing_kwargs" not in self.values:
            self.add("gradient_checkpointing_kwargs", named["gradient_checkpointing_kwargs"])


def _is_false(call: ast.Call) -> bool:
    """Return whether a call's only argument is False."""
    given = [*call.args, *(one.value for one in call.keywords)]
    return len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value is False
