"""One training of a script: the trainer's call, and from there its arguments, model, adapter and quantisation."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import Called, Entries, Missing, Record, Result, Value, plain
from vramwise.documents.python.scopes import Index, Scope, Site, dotted
from vramwise.documents.python.source import Source
from vramwise.trainers.scripts import calls
from vramwise.types import Home, KeyPath, Span, Unsaid

# Calls that lead from a trainer to its model: no script has more.
_LONGEST_CHAIN = 30
# Ways to make a model that are looked at, and how deep they branch again.
_MOST_SIDES = 4
_EMPTY = "the model's name is empty until the command line gives one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A call that trains."""

    call: ast.Call
    site: Site
    name: str  # of the trainer's class, as the library has it
    trainer: str
    kind: str


def trainings(found: Index, evaluator: Evaluator) -> list[Found]:
    """Every call of a trainer that is known, in the file's order; classes of the file count as what they extend."""
    listed = []
    for call, site in found.calls:
        full = evaluator.called(call, site)
        name = _class_name(full.rpartition(".")[2], site.scope)
        if name in calls.TRAINERS and not _is_another(full, name, call, evaluator, site):
            trainer, kind = calls.TRAINERS[name]
            listed.append(Found(call=call, site=site, name=name, trainer=trainer, kind=kind))
    return sorted(listed, key=lambda one: one.call.lineno)


def _is_another(full: str, name: str, call: ast.Call, evaluator: Evaluator, site: Site) -> bool:
    """Whether a class only shares its name: it is the project's own and is not given a training's arguments."""
    imported = evaluator.imported((dotted(call.func) or "").partition(".")[0], site.scope)
    if imported is None or full.partition(".")[0] in calls.LIBRARIES or not full.endswith(name):
        return False
    return not any(one.arg == calls.ARGS for one in call.keywords)


def _class_name(name: str, scope: Scope | None) -> str:
    """The library's class behind a class of the file."""
    for _ in range(5):
        holder = scope
        while holder is not None and name not in holder.classes:
            holder = holder.parent
        if holder is None:
            return name
        node = holder.classes[name].node
        assert isinstance(node, ast.ClassDef)
        if not node.bases:
            return name
        name = (dotted(node.bases[0]) or name).rpartition(".")[2]
    return name


@dataclass(slots=True, kw_only=True)
class Training:
    """What one training is given, collected as keys."""

    found: Found
    evaluator: Evaluator
    source: Source
    said: Mapping[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    spans: dict[KeyPath, Span] = field(default_factory=dict)
    homes: dict[str, Home] = field(default_factory=dict)
    unsaid: list[Unsaid] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)
    unsloth: bool = False
    # A method has given the weights their type, whatever they were loaded as.
    cast: bool = False
    depth: int = 0
    # Key → the argument of a home that says it.
    written: dict[str, tuple[str, str]] = field(default_factory=dict)

    def read(self) -> None:
        """Follow the call to all that decides the run."""
        called = Called(name=self.found.name, node=self.found.call, site=self.found.site)
        positional, named, unknown = self.evaluator.arguments(called)
        self._lacking("arguments", unknown)
        self._home("trainer", called)
        args = named.get(calls.ARGS)
        if args is None and len(positional) > 1:
            place = 2 if self.found.name in calls.REFERENCE_SECOND and len(positional) > 2 else 1
            args = positional[place]
        self._reference(named, positional)
        self._arguments(args)
        self._changed_arguments()
        self._old_arguments(named)
        if calls.INIT in named:
            self._init(named[calls.INIT])
        model = named.get(calls.MODEL, positional[0] if positional else None)
        self._model(model if model is not None and not _is_none(model) else self._made(called))
        peft = named.get(calls.PEFT)
        if peft is not None and not _is_none(peft):
            self._adapter(peft)
        self._methods()
        self._cast_by_preparation()
        self._plain_defaults()
        if not self.found.kind:  # the plain Trainer leaves tokenizing to the script
            self._length()

    def _made(self, called: Called) -> Result | None:
        """The model that `model_init=function` makes."""
        maker = next((one.value for one in called.node.keywords if one.arg == "model_init"), None)
        return self.evaluator.returned(maker.id, called.site) if isinstance(maker, ast.Name) else None

    def _reference(self, named: Mapping[str, Result], positional: list[Result]) -> None:
        """A second model that the trainer is given to compare with."""
        second = positional[1] if self.found.name in calls.REFERENCE_SECOND and len(positional) > 1 else None
        given = named.get("ref_model", second)
        if isinstance(given, Called) and given.last == "from_pretrained":
            self.facts["reference model"] = given.node.lineno

    def _changed_arguments(self) -> None:
        """`trainer.args.x = …` behind the trainer's call."""
        scope = self.found.site.scope
        for name, bindings in list(scope.bindings.items()):
            if any(one.value is self.found.call for one in bindings):
                start = f"{name}.{calls.ARGS}."
                for other in [one for one in scope.bindings if one.startswith(start)]:
                    held = self.evaluator.lookup(other, Site(scope=scope, order=2**31))
                    if held is not None:
                        self.add(other[len(start) :], held)

    def _init(self, kwargs: Result) -> None:
        """`model_init_kwargs`: arguments of the `from_pretrained` that the trainer calls."""
        if isinstance(kwargs, Entries):
            self._loading(kwargs.items)
        elif isinstance(kwargs, Missing):
            self.unsaid.append(_unsaid("model", kwargs))

    def _cast_by_preparation(self) -> None:
        """PEFT's preparation casts every weight to fp32 that is not quantised; without quantisation, all of them."""
        quantised = self.values.get("load_in_4bit") or self.values.get("load_in_8bit")
        if "prepared" in self.facts and not quantised and not self.unsloth and not self._open("quantization"):
            self.values["dtype"] = "float32"
            self.spans.pop(("dtype",), None)
            line = self.facts["prepared"]
            self.assumed.append(f"dtype: prepare_model_for_kbit_training casts all weights to fp32 (line {line})")

    def _plain_defaults(self) -> None:
        """TRL copies a plain TrainingArguments into its own config, defaults included: they replace TRL's.

        Unsloth decides both of these itself.
        """
        home = self.homes.get("args")
        plain_arguments = home is not None and home.name in calls.PLAIN_ARGUMENTS
        if not plain_arguments or self.unsloth or not self.found.kind or self._open("training arguments"):
            return
        for key in calls.PLAIN_DEFAULTS:
            if key not in self.values and not self._open(key):
                self._put(key, False)
                self.assumed.append(
                    f"{key}: off, which is the default of TrainingArguments; that of TRL's config is on"
                )

    def _open(self, key: str) -> bool:
        return any(one.key == key for one in self.unsaid)

    def _length(self) -> None:
        """How long rows are, where the script's own tokenizing says it: `tokenizer(…, truncation=…, max_length=…)`."""
        found: dict[Any, Value] = {}
        for call, site in self.evaluator.found.calls:
            named = {one.arg: one.value for one in call.keywords}
            if named.keys() >= {"truncation", "max_length"}:
                held = self.evaluator.value(named["max_length"], site)
                if isinstance(held, Value) and isinstance(held.value, int):
                    found.setdefault(held.value, held)
        if len(found) == 1 and not self.values.keys() & calls.LENGTHS:
            self.add("max_length", Value(value=next(iter(found)), notes=next(iter(found.values())).notes))

    def _arguments(self, args: Result | None) -> None:
        """The training's config: its keywords are keys under the same names."""
        if args is None:
            return
        if isinstance(args, Record) and not args.open:
            for key, held in args.items.items():
                self.add(key, held)
            return
        if not isinstance(args, Called):
            missing = plain(args)
            if isinstance(missing, Missing):
                self.unsaid.append(_unsaid("training arguments", missing))
            return
        if args.last in calls.SETTERS:
            self._arguments(self._owner(args))
            self._set(args)
            return
        self._home("args", args)
        positional, named, unknown = self.evaluator.arguments(args)
        self._lacking("training arguments", unknown)
        if positional:
            named.setdefault("output_dir", positional[0])
        for note in args.notes:
            self.assumed.append(f"{args.last}: {note}")
        for name, held in {**named, **args.assigned}.items():
            if name == calls.INIT:
                self._init(held)
            self.add(calls.RENAMED_ARGUMENTS.get(name, name), held, role="args", argument=name)

    def _set(self, called: Called) -> None:
        """`args.set_training(batch_size=…)`."""
        _, named, _ = self.evaluator.arguments(called)
        for argument, key in calls.SETTERS[called.last].items():
            if argument in named:
                self.add(key, named[argument])

    def _old_arguments(self, named: Mapping[str, Result]) -> None:
        for name, key in calls.OLD_TRAINER_ARGUMENTS.items():
            if name in named and key not in self.values:
                self.add(key, named[name], role="trainer", argument=name)
                self.facts.setdefault(f"trainer argument {name}", self._argument_line("trainer", name))

    def _model(self, model: Result | None) -> None:
        """From the trainer's model back to what loaded it."""
        for _ in range(_LONGEST_CHAIN):
            if model is None:
                return
            if isinstance(model, Value) and model.value == "":
                self.unsaid.append(
                    Unsaid(key="model_name_or_path", name="model_name_or_path", line=self.found.call.lineno, why=_EMPTY)
                )
                return
            if isinstance(model, Value) and isinstance(model.value, str):
                self.add("model_name_or_path", model, role="trainer", argument=calls.MODEL)
                self.facts["named model"] = self.found.call.lineno
                return
            if not isinstance(model, Called):
                missing = plain(model)
                side = self._side(missing) if isinstance(missing, Missing) else None
                if side is None:
                    if isinstance(missing, Missing):
                        self._branches(missing)
                    return
                model = side
            model = self._step(model)

    def _step(self, called: Called) -> Result | None:
        """What a call in the model's chain says, and the model that it is given."""
        last = called.last.partition("[")[0]
        owner = called.name.partition("[")[0].rpartition(".")[0].rpartition(".")[2]
        positional, named, unknown = self.evaluator.arguments(called)
        if last == "from_pretrained" and "Peft" in owner:
            self._put("use_peft", True)
            if owner.startswith("AutoPeft"):
                self._loading(named)
            return named.get("model", positional[0] if positional else None)
        if last in ("from_pretrained", "from_config"):
            self._lacking("model", unknown)
            self._loaded(called, owner, positional, named)
            return None
        if last == "get_peft_model" and owner in calls.UNSLOTH_MODELS:
            self._lacking("adapter", unknown)
            self._unsloth_adapter(called, named)
            return named.get("model", positional[0] if positional else None)
        if last == "get_peft_model":
            config = named.get("peft_config", positional[1] if len(positional) > 1 else None)
            if config is not None:
                self._adapter(config)
                self.facts["adapter created by the script"] = called.node.lineno
            return named.get("model", positional[0] if positional else None)
        if last in calls.PREPARES:
            self._prepared(called, named)
            return named.get("model", positional[0] if positional else None)
        if last in calls.PASSES_ON:
            self._cast(last, positional, named)
            if positional and not isinstance(called.node.func, ast.Attribute):
                return positional[0]
            if (
                last in ("prepare", "prepare_model", "setup_chat_format", "deepcopy", "for_training", "compile")
                and positional
            ):
                return positional[0]
            return self._owner(called)
        self._unknown_model(
            Missing(name="model_name_or_path", line=called.node.lineno, why=f"{called.name}() creates the model")
        )
        return None

    def _side(self, missing: Missing) -> Called | None:
        """The call to follow where a branch is open: the one that makes more of the model, a new adapter first."""
        sides = [one for one in missing.sides if _adds(one)]
        if len(sides) > 1:
            made = [one for one in sides if one.last == "get_peft_model"]
            if len(made) != 1 or not any(one.last == "from_pretrained" and "Peft" in one.name for one in sides):
                return None
            self.assumed.append(f"use_peft: a new adapter is taken, not a saved one (line {made[0].node.lineno})")
            return made[0]
        return sides[0] if sides else None

    def _branches(self, missing: Missing) -> None:
        """Several calls may make the model: what all of them say is known, the rest is open."""
        sides = [one for one in missing.sides if _adds(one)][:_MOST_SIDES]
        read = [self._apart(one) for one in sides]
        if not any("model_name_or_path" in one.values for one in read):
            self.unsaid += read[0].unsaid if read else []
            if not self._open("model_name_or_path"):
                self._unknown_model(missing)
            if not read:
                return
        for one in read:
            self.homes = {**one.homes, **self.homes}
            self.unsaid += [open_key for open_key in one.unsaid if open_key not in self.unsaid]
            self.facts = {**one.facts, **self.facts}
        for key in dict.fromkeys(key for one in read for key in one.values):
            held = [one.values.get(key, False if key in calls.SWITCHES else None) for one in read]
            whole = all(key in one.values for one in read)
            if all(value == held[0] for value in held) or (not whole and key not in calls.DECIDING):
                first = next(one for one in read if key in one.values)
                self.values.setdefault(key, first.values[key])
                self.spans |= {path: span for path, span in first.spans.items() if path == (key,)}
                self.assumed += [note for note in first.assumed if note.startswith(f"{key}:")]
            elif key in self.said:
                self.values[key] = self.said[key]
            elif key not in self.values:
                self.unsaid.append(replace(_unsaid(key, missing), either=tuple(held)))

    def _apart(self, model: Called) -> Training:
        """What one way to make the model says, by itself."""
        other = Training(found=self.found, evaluator=self.evaluator, source=self.source, said=self.said)
        other.depth = self.depth + 1
        if other.depth < _MOST_SIDES:
            other._model(model)
        return other

    def _unknown_model(self, missing: Missing) -> None:
        """The model cannot be followed: neither its name nor what was done to it before is known."""
        self.unsaid.append(_unsaid("model_name_or_path", missing))
        if "use_peft" not in self.values and (missing.sides or missing.name == "model_name_or_path"):
            self.unsaid.append(_unsaid("adapter", missing))

    def _cast(self, last: str, positional: list[Result], named: Mapping[str, Result]) -> None:
        """`.bfloat16()`, `.to(torch.float16)`: the type that the weights have from then on."""
        given = [plain(one) for one in (*positional, *named.values())] if last == "to" else []
        types = [one.value for one in given if isinstance(one, Value) and one.value in calls.TYPES]
        name = calls.CASTS.get(last) or (types[0] if types else None)
        if name is not None and "dtype" not in self.values:
            self.values["dtype"] = name
            self.cast = True

    def _owner(self, called: Called) -> Result | None:
        function = called.node.func
        return self.evaluator.evaluate(function.value, called.site) if isinstance(function, ast.Attribute) else None

    def _loaded(self, called: Called, owner: str, positional: list[Result], named: Mapping[str, Result]) -> None:
        """`from_pretrained`: the model's name, its type, quantisation, attention."""
        self.unsloth = self.unsloth or owner in calls.UNSLOTH_MODELS
        self._home("model", called)
        names = ("pretrained_model_name_or_path", "model_name", "model_id", "config")
        name = next((named[one] for one in names if one in named), positional[0] if positional else None)
        if name is not None:
            argument = next((one for one in names if one in named), "")
            self._named_model(self._model_name(name), argument)
        self._loading(named, role="model")
        if self.unsloth:
            self._unsloth_loaded(called, owner)
        elif "dtype" not in self.values:
            self.facts["no dtype"] = called.node.lineno
        if "device_map" in named:
            self.facts["device_map"] = called.node.lineno
            spread = plain(named["device_map"])
            if isinstance(spread, Value) and spread.value in calls.SPREADS:
                self.facts["device_map spread"] = called.node.lineno

    def _named_model(self, name: Result, argument: str) -> None:
        if isinstance(name, Value) and name.value == "":
            name = Missing(name="model_name_or_path", line=self.homes["model"].line, why=_EMPTY)
        self.add("model_name_or_path", name, role="model", argument=argument)

    def _model_name(self, result: Result) -> Result:
        """A config object stands for the model that it is of."""
        if isinstance(result, Called) and result.last in ("from_pretrained", "from_dict") and result.node.args:
            return self.evaluator.evaluate(result.node.args[0], result.site)
        return result

    def _loading(self, named: Mapping[str, Result], role: str = "") -> None:
        """Arguments of `from_pretrained`, from the call or from a mapping."""
        listed = calls.UNSLOTH_ARGUMENTS if self.unsloth else calls.ARGUMENTS
        for argument, key in listed["model"].items():
            if argument in named and key != "model_name_or_path" and not (key == "dtype" and self.cast):
                self.add(key, named[argument], role=role, argument=argument)
        flash = named.get("use_flash_attention_2")
        if flash is not None and isinstance(held := plain(flash), Value) and held.value:
            self._put("attn_implementation", "flash_attention_2")
        if "quantization_config" in named:
            self._quantized(named["quantization_config"])

    def _quantized(self, config: Result) -> None:
        if isinstance(config, Called) and config.last == "BitsAndBytesConfig":
            self._home("quantization", config)
            _, named, unknown = self.evaluator.arguments(config)
            self._lacking("quantization", unknown)
            for argument, key in calls.ARGUMENTS["quantization"].items():
                if argument in named:
                    self.add(key, named[argument], role="quantization", argument=argument)
        elif isinstance(config, Missing):
            self.unsaid.append(_unsaid("quantization", config))

    def _adapter(self, config: Result) -> None:
        """A LoraConfig; what it leaves out has PEFT's defaults, not those of TRL's command."""
        if isinstance(config, Missing):
            self.unsaid.append(_unsaid("adapter", config))
            return
        if isinstance(config, Called) and config.last == "get_peft_config":
            self._of_command_line(config)
            return
        if not isinstance(config, Called) or not config.last.endswith("Config"):
            return
        self._put("use_peft", True)
        self._home("lora", config)
        _, named, unknown = self.evaluator.arguments(config)
        self._lacking("adapter", unknown)
        for argument, key in calls.ARGUMENTS["lora"].items():
            if argument in named:
                self.add(key, named[argument], role="lora", argument=argument)
        for key, default in calls.LORA_DEFAULTS.items():
            self._put(key, default)

    def _of_command_line(self, config: Called) -> None:
        """TRL's `get_peft_config`: an adapter where the command line says `--use_peft`."""
        positional, _, _ = self.evaluator.arguments(config)
        held = positional[0] if positional else None
        if isinstance(held, Called | Record):
            items = held.assigned if isinstance(held, Called) else held.items
            for key in ("use_peft", *calls.ARGUMENTS["lora"].values()):
                if key in items:
                    self.add(key, items[key])

    def _unsloth_adapter(self, called: Called, named: Mapping[str, Result]) -> None:
        """What `get_peft_model` leaves out has the trainer's own defaults; its word on checkpointing comes last."""
        self._home("lora", called)
        self._put("use_peft", True)
        for argument, key in calls.UNSLOTH_ARGUMENTS["lora"].items():
            if argument in named:
                self.add(key, named[argument], role="lora", argument=argument)

    def _unsloth_loaded(self, called: Called, owner: str) -> None:
        if owner in calls.UNSLOTH_COMPILED:
            self._put("fast_model", True)
        if owner == "FastVisionModel":
            self.facts["vision"] = called.node.lineno

    def _prepared(self, called: Called, named: Mapping[str, Result]) -> None:
        """PEFT's preparation of a quantised base also turns checkpointing on, unless it is told not to."""
        self.facts["prepared"] = called.node.lineno
        off = named.get("use_gradient_checkpointing")
        if off is None or _is_true(off):
            self._put("gradient_checkpointing", True)
            self.assumed.append(f"gradient_checkpointing: turned on by {called.last} (line {called.node.lineno})")

    def _methods(self) -> None:
        """What is called on the model besides."""
        for call, site in self.evaluator.found.calls:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name not in calls.METHODS or self.evaluator.holds(site) is False:
                continue
            called = Called(name=name, node=call, site=site)
            if name == "gradient_checkpointing_enable":
                self._checkpointed(called)
            elif name in calls.SETTERS and self.found.site.scope is site.scope:
                self._set(called)
            elif name == "add_adapter" and "use_peft" not in self.values:
                positional, named, _ = self.evaluator.arguments(called)
                config = named.get("adapter_config", positional[0] if positional else None)
                if isinstance(config, Called) and config.last == "LoraConfig":
                    self._adapter(config)
            elif name == "empty_cache":
                self.facts.setdefault("empty_cache", call.lineno)

    def _checkpointed(self, called: Called) -> None:
        _, named, _ = self.evaluator.arguments(called)
        if not self.values.get("gradient_checkpointing"):
            self.values["gradient_checkpointing"] = True
            line = called.node.lineno
            self.assumed.append(f"gradient_checkpointing: turned on by the model's method (line {line})")
        if "gradient_checkpointing_kwargs" in named and "gradient_checkpointing_kwargs" not in self.values:
            self.add("gradient_checkpointing_kwargs", named["gradient_checkpointing_kwargs"])

    def add(self, key: str, result: Result, *, role: str = "", argument: str = "") -> None:
        """A key with what an argument gives it, and where that is written."""
        if key in self.said:
            self.values[key] = self.said[key]
            self.assumed.append(f"{key}: {self.said[key]!r} (--set)")
            return
        found = plain(result)
        if isinstance(found, Missing):
            self.unsaid.append(_unsaid(key, found))
            return
        self.values[key] = _as_yaml(found.value)
        self.assumed += [f"{key}: {note}" for note in found.notes]
        home = self.homes.get(role)
        if home is not None and argument in home.arguments:
            start, end = home.arguments[argument]
            self.written[key] = (role, argument)
            value = self.source.span(found.node) if found.node is not None and hasattr(found.node, "lineno") else None
            at = self.source.text.find("=", start, end)
            inside = (at + 1 + len(self.source.text[at + 1 : end]) - len(self.source.text[at + 1 : end].lstrip()), end)
            first, last = value or inside
            self.spans[(key,)] = Span(
                key_start=start, key_end=at, value_start=first, value_end=last, shared=value is None
            )

    def _put(self, key: str, value: Any) -> None:
        """A key that follows from a call, where none says it."""
        if key in self.said:
            value = self.said[key]
        self.values.setdefault(key, value)

    def _home(self, role: str, called: Called) -> None:
        node = called.node
        if role in self.homes or node.end_lineno is None or not hasattr(node.func, "end_lineno"):
            return
        text = self.source.text
        _, end = self.source.span(node)
        _, function_end = self.source.span(node.func)
        opening = text.find("(", function_end, end)
        if opening < 0:
            return
        arguments = {one.arg: self.source.span(one) for one in node.keywords if one.arg is not None}
        self.homes[role] = Home(
            name=called.last, line=node.lineno, open_end=opening + 1, close_start=end - 1, arguments=arguments
        )

    def _argument_line(self, role: str, argument: str) -> int:
        home = self.homes.get(role)
        if home is None or argument not in home.arguments:
            return self.found.call.lineno
        return self.source.text.count("\n", 0, home.arguments[argument][0]) + 1

    def _lacking(self, key: str, unknown: list[Missing]) -> None:
        self.unsaid += [_unsaid(key, one) for one in unknown]


def _adds(called: Called) -> bool:
    """Whether a call makes more of a model than the model it is given."""
    return called.last.partition("[")[0] not in calls.PASSES_ON


def _is_none(result: Result) -> bool:
    return isinstance(result, Value) and result.value is None


def _is_true(result: Result | None) -> bool:
    found = plain(result) if result is not None else None
    return isinstance(found, Value) and bool(found.value)


def _unsaid(key: str, missing: Missing) -> Unsaid:
    return Unsaid(key=key, name=missing.name, line=missing.line, why=missing.why, either=missing.either)


def _as_yaml(value: Any) -> Any:
    """A value as a config would hold it."""
    if isinstance(value, tuple | list | set | frozenset):
        return [_as_yaml(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _as_yaml(held) for key, held in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
