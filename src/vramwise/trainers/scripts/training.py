"""Reads one training of a script: the trainer's call, then its arguments, model, adapter and quantisation."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import FROM_COMMAND_LINE, Called, Missing, Record, Result, Value, plain
from vramwise.documents.python.scopes import Index, Scope, Site, dotted
from vramwise.limits.meter import work
from vramwise.trainers.arguments.vocabulary import RENAMED
from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.collected import Found, is_none, made_elsewhere, unsaid_of
from vramwise.trainers.scripts.lengths import pads_rows, row_lengths
from vramwise.trainers.scripts.methods import Methods
from vramwise.types import version_parts
from vramwise.variants.versions import GONE

# Before this version, TRL's configs had the defaults of TrainingArguments.
_CONFIGS_OWN = (0, 22)


def trainings(found: Index, evaluator: Evaluator) -> list[Found]:
    """Return every call of a known trainer, in the file's order; classes of the file count as what they extend."""
    listed = []
    for call, site in found.calls:
        full = evaluator.called(call, site)
        name = _class_name(full.rpartition(".")[2], site.scope)
        if name not in calls.TRAINERS and isinstance(call.func, ast.Name) and _has_arguments(call):
            held = evaluator.evaluate(call.func, site)  # a variable that holds one of several trainers
            full = held.name if isinstance(held, Record) and held.open else full
            name = _class_name(full.rpartition(".")[2], site.scope)
        if name in calls.TRAINERS and not _is_another(full, name, call, evaluator, site):
            trainer, kind = calls.TRAINERS[name]
            listed.append(Found(call=call, site=site, name=name, trainer=trainer, kind=kind))
    return sorted(listed, key=lambda one: one.call.lineno)


def _has_arguments(call: ast.Call) -> bool:
    return any(one.arg == calls.ARGS for one in call.keywords)


def _is_another(full: str, name: str, call: ast.Call, evaluator: Evaluator, site: Site) -> bool:
    """Return whether a class only shares its name: it is the project's own and gets no training arguments."""
    imported = evaluator.imported((dotted(call.func) or "").partition(".")[0], site.scope)
    if imported is None or full.partition(".")[0] in calls.LIBRARIES or not full.endswith(name):
        return False
    return not _has_arguments(call)


def _class_name(name: str, scope: Scope | None) -> str:
    """Return the library's class behind a class of the file; empty if it extends none and only shares its name."""
    for _ in range(5):
        holder = scope
        while holder is not None and name not in holder.classes:
            holder = holder.parent
        if holder is None:
            return name
        inner = holder.classes[name]
        node, scope = inner.node, inner.parent
        assert isinstance(node, ast.ClassDef)
        if not node.bases:
            return ""
        name = (dotted(node.bases[0]) or name).rpartition(".")[2]
    return name


class Training(Methods):
    """Reads one training."""

    __slots__ = ()

    def read(self) -> None:
        """Follow the call to everything that affects the run."""
        called = Called(name=self.found.name, node=self.found.call, site=self.found.site)
        positional, named, unknown = self.evaluator.arguments(called)
        self.lacking("arguments", unknown)
        self.home("trainer", called)
        args = named.get(calls.ARGS)
        if args is None and len(positional) > 1:
            place = 2 if self.found.name in calls.REFERENCE_SECOND and len(positional) > 2 else 1
            args = positional[place]
        self._removed()
        self._reference(named, positional)
        self._collator(named)
        self._arguments(args)
        self._changed_arguments()
        self._old_arguments(named)
        if calls.INIT in named:
            self.read_init(named[calls.INIT])
        model = named.get(calls.MODEL, positional[0] if positional else None)
        self.read_model(model if model is not None and not is_none(model) else self._made(called))
        if calls.QUANTIZATION in named and "named model" in self.facts:
            self.read_loading({calls.QUANTIZATION: named[calls.QUANTIZATION]})
        peft = named.get(calls.PEFT)
        if isinstance(peft, Value) and "use_peft" not in self.values:
            self.assume("use_peft", *peft.notes)
        elif peft is not None and not is_none(peft):
            self.read_adapter(peft)
        self._full_finetuning()
        self.read_methods()
        self.read_frozen()
        self._prepared()
        self._plain_defaults()
        if not self.found.kind:  # with the plain Trainer, the script tokenizes
            self._length()

    def _full_finetuning(self) -> None:
        """Remove the adapter: Unsloth's `get_peft_model` has no effect on a model loaded with `full_finetuning`."""
        if not (self.unsloth and self.values.get("full_finetuning") and self.values.get("use_peft")):
            return
        for key in calls.UNSLOTH_ARGUMENTS["lora"].values():
            if self.written.get(key, ("lora",))[0] == "lora":
                self.values.pop(key, None)
                self.spans.pop((key,), None)
        self.values["use_peft"] = False
        self.unsaid = [one for one in self.unsaid if one.key not in calls.ONLY_ADAPTER]
        self.assume("use_peft", "get_peft_model has no effect with full_finetuning")

    def _made(self, called: Called) -> Result | None:
        """Return the model that `model_init=function` creates, or None."""
        maker = next((one.value for one in called.node.keywords if one.arg == "model_init"), None)
        return self.evaluator.returned(maker.id, called.site) if isinstance(maker, ast.Name) else None

    def _removed(self) -> None:
        """Record what the script imports, or a module beside it, that its package has removed."""
        scopes = [self.evaluator.found.module, *filter(None, self.evaluator.found.modules.values())]
        for scope in scopes:
            work(len(scope.imports))
            for full in scope.imports.values():
                package, name = full.partition(".")[0], full.rpartition(".")[2]
                if name in calls.REMOVED.get(package, ()):
                    self.facts.setdefault(f"{GONE}{package}: {name}", self.found.call.lineno)

    def _reference(self, named: Mapping[str, Result], positional: list[Result]) -> None:
        """Record a second model that the trainer gets as the reference."""
        second = positional[1] if self.found.name in calls.REFERENCE_SECOND and len(positional) > 1 else None
        given = named.get("ref_model", second)
        if isinstance(given, Called) and given.last == "from_pretrained":
            self.facts["reference model"] = given.node.lineno

    def _collator(self, named: Mapping[str, Result]) -> None:
        """Record a data collator that the script passes itself."""
        given = named.get("data_collator")
        if given is not None and not (isinstance(given, Value) and given.value is None):
            self.facts["data collator"] = self.found.call.lineno
        if isinstance(given, Called):
            _, own, _ = self.evaluator.arguments(given)
            multiple = plain(own["pad_to_multiple_of"]) if "pad_to_multiple_of" in own else None
            if isinstance(multiple, Value) and type(multiple.value) is int and multiple.value > 0:
                self.facts["pad multiple"] = multiple.value

    def _changed_arguments(self) -> None:
        """Read `trainer.args.x = …` after the trainer's call."""
        scope = self.found.site.scope
        for name, bindings in list(scope.bindings.items()):
            work(len(bindings))
            if any(one.value is self.found.call for one in bindings):
                start = f"{name}.{calls.ARGS}."
                members = scope.members.get(name.partition(".")[0], [])
                work(len(members))
                for other in [one for one in members if one.startswith(start)]:
                    held = self.evaluator.lookup(other, Site(scope=scope, order=2**31))
                    if held is not None:
                        self.add(other[len(start) :], held)

    def _prepared(self) -> None:
        """Apply PEFT's preparation: it casts all unquantised weights to fp32.

        With quantisation it also turns checkpointing on. No argument turns it off again, because the Trainer only turns
        it on.
        """
        quantised = self.values.get("load_in_4bit") or self.values.get("load_in_8bit")
        unknown = any(self.is_open(key) for key in ("quantization", "load_in_4bit", "load_in_8bit", "model"))
        line = self.facts.get("prepared with checkpointing")
        off = not self.values.get("gradient_checkpointing")
        if line is not None and off and (quantised or unknown) and not self.unsloth:
            self.values["gradient_checkpointing"] = True
            self.spans.pop(("gradient_checkpointing",), None)
            self.assume("gradient_checkpointing", f"turned on by PEFT's preparation (line {line})")
        if "prepared" in self.facts and not quantised and not self.unsloth and not unknown:
            self.values["dtype"] = "float32"
            self.spans.pop(("dtype",), None)
            at = self.facts["prepared"]
            self.assume("dtype", f"prepare_model_for_kbit_training casts all weights to fp32 (line {at})")

    def _plain_defaults(self) -> None:
        """Set defaults of a plain TrainingArguments, which TRL copies into its own config and which replace TRL's.

        Unsloth decides both of these itself.
        """
        home = self.homes.get("args")
        plain_arguments = home is not None and home.name in calls.PLAIN_ARGUMENTS
        if not plain_arguments or self.unsloth or not self.found.kind or self.is_open("training arguments"):
            return
        for key in calls.PLAIN_DEFAULTS:
            if key not in self.values and not self.is_open(key):
                self.put(key, False)
                if not () < version_parts(self.source.versions.get("trl", "")) < _CONFIGS_OWN:
                    self.assume(key, "off, which is the default of TrainingArguments; that of TRL's config is on")

    def _length(self) -> None:
        """Set the row length if the script's own tokenizing shows it."""
        if self.values.keys() & calls.LENGTHS:
            return
        found = row_lengths(self.evaluator)
        lengths = [one for one in found if isinstance(one, Value)]
        if len(lengths) > 1 and "two stacks" in self.facts:  # those of texts, and of what is to be written
            lengths.sort(key=lambda one: -int(one.value))
            self.facts["target length"] = int(lengths[-1].value)
            del lengths[1:]
            found = list(lengths)
        if len(lengths) > 1:
            either = tuple(one.value for one in lengths)
            found = [
                Missing(name="max_length", line=self.found.call.lineno, why="rows have several lengths", either=either)
            ]
        if lengths and len(found) == 1 and pads_rows(self.evaluator):
            self.facts["padded rows"] = self.found.call.lineno
        if found:
            one = found[0]
            self.add("max_length", one if isinstance(one, Missing) else replace(one, node=None))

    def _arguments(self, args: Result | None) -> None:
        """Read the training's config: its keywords are keys with the same names."""
        if args is None:
            return
        if isinstance(args, Record) and not args.open:
            for key, held in args.items.items():
                self.add(key, held)
            return
        if not isinstance(args, Called):
            missing = plain(args)
            if isinstance(missing, Missing):
                self.unsaid.append(unsaid_of("training arguments", missing))
            return
        if args.last in calls.SETTERS:
            self._arguments(self.owner(args))
            self.read_set(args)
            return
        if not args.last[:1].isupper():
            self.unsaid.append(made_elsewhere("training arguments", args))
            return
        if args.last not in calls.CONFIGS and FROM_COMMAND_LINE not in args.notes:
            self.assume(args.last, "taken to have the defaults of the library's own class")
        self.home("args", args)
        positional, named, unknown = self.evaluator.arguments(args)
        self.lacking("training arguments", unknown)
        if positional:
            named.setdefault("output_dir", positional[0])
        if FROM_COMMAND_LINE in args.notes:
            self.words[""] = "--"
        self.assume(args.last, *args.notes)
        for name, held in {**named, **args.assigned}.items():
            if name == calls.INIT:
                self.read_init(held)
            self.add(RENAMED.get(name, name), held, role="args", argument=name)

    def _old_arguments(self, named: Mapping[str, Result]) -> None:
        for name, key in calls.OLD_TRAINER_ARGUMENTS.items():
            if name in named and key not in self.values:
                self.add(key, named[name], role="trainer", argument=name)
                self.facts.setdefault(f"trainer argument {name}", self.argument_line("trainer", name))
