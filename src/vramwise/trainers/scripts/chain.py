"""Follows a trainer's model back to the call that loaded it, through everything done to it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from vramwise.documents.python.results import Called, Missing, Result, Value, plain
from vramwise.limits.meter import work
from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.collected import unsaid_of
from vramwise.trainers.scripts.loads import EMPTY, Loads
from vramwise.types import Unsaid

# The longest chain of calls from a trainer to its model.
_LONGEST_CHAIN = 30
# How many ways to create a model are followed, and how deeply they may branch.
_MOST_SIDES = 4


class Chain(Loads):
    """Follows the model."""

    __slots__ = ()

    def read_model(self, model: Result | None) -> None:
        """Follow the trainer's model back to the call that loaded it."""
        for _ in range(_LONGEST_CHAIN):
            if model is None:
                return
            if isinstance(model, Value) and not model.value:
                self.unsaid.append(
                    Unsaid(key="model_name_or_path", name="model_name_or_path", line=self.found.call.lineno, why=EMPTY)
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
        """Read a call in the model's chain, and return the model that it is given."""
        last = called.last.partition("[")[0]
        owner = called.name.partition("[")[0].rpartition(".")[0].rpartition(".")[2]
        positional, named, unknown = self.evaluator.arguments(called)
        self.assume("use_peft" if last == "get_peft_model" else "model", *called.notes)
        if last == "from_pretrained" and "Peft" in owner:
            self._saved_adapter(called)
            if owner.startswith("AutoPeft"):
                self.read_loading(named)
            return named.get("model", positional[0] if positional else None)
        if last in ("from_pretrained", "from_config"):
            self.lacking("model", unknown)
            self.read_loaded(called, owner, positional, named)
            return None
        if last == "get_peft_model" and self.merged:
            return named.get("model", positional[0] if positional else None)
        if last == "get_peft_model" and owner in calls.UNSLOTH_MODELS:
            self.lacking("adapter", unknown)
            self.read_unsloth_adapter(called, named)
            return named.get("model", positional[0] if positional else None)
        if last == "get_peft_model":
            config = named.get("peft_config", positional[1] if len(positional) > 1 else None)
            if config is not None:
                self.read_adapter(config)
                self.facts["adapter created by the script"] = called.node.lineno
            return named.get("model", positional[0] if positional else None)
        if last in calls.PREPARES:
            self.read_prepared(called, named)
            return named.get("model", positional[0] if positional else None)
        if last in calls.PASSES_ON:
            self.merged = self.merged or last == "merge_and_unload"
            self._cast(last, positional, named)
            if positional and not isinstance(called.node.func, ast.Attribute):
                return positional[0]
            if (
                last in ("prepare", "prepare_model", "setup_chat_format", "deepcopy", "for_training", "compile")
                and positional
            ):
                return positional[0]
            return self.owner(called)
        self._unknown_model(
            Missing(name="model_name_or_path", line=called.node.lineno, why=f"{called.name}() creates the model"),
            made=True,
        )
        return None

    def _saved_adapter(self, called: Called) -> None:
        """Read an adapter that was trained before; its settings are saved with it. Merged adapters are ignored."""
        if self.merged or self.values.get("use_peft"):
            return
        self.put("use_peft", True)
        positional, named, _ = self.evaluator.arguments(called)
        place = 0 if "AutoPeft" in called.name else 1
        path = (
            plain(named.get("model_id", positional[place])) if "model_id" in named or len(positional) > place else None
        )
        name = path.value if isinstance(path, Value) and isinstance(path.value, str) else ""
        saved = self.load(f"{name}/adapter_config.json") if name and "\n" not in name else None
        if saved is not None:
            note = f"as {name}/adapter_config.json says"
            for argument, key in calls.ARGUMENTS["lora"].items():
                if argument in saved:
                    self.add(key, Value(value=saved[argument], notes=(note,)))
            return
        why = f"its settings are saved with the adapter that {called.last} loads"
        self.unsaid.append(Unsaid(key="adapter", name="lora_r", line=called.node.lineno, why=why))

    def _side(self, missing: Missing) -> Called | None:
        """Return the call to follow if a branch is unknown: the one that adds to the model, a new adapter first."""
        sides = [one for one in missing.sides if _adds(one)]
        if len(sides) > 1:
            made = [one for one in sides if one.last == "get_peft_model"]
            if len(made) != 1 or not any(one.last == "from_pretrained" and "Peft" in one.name for one in sides):
                return None
            self.assume("use_peft", f"a new adapter is taken, not a saved one (line {made[0].node.lineno})")
            return made[0]
        return sides[0] if sides else None

    def _branches(self, missing: Missing) -> None:
        """Read several calls that may create the model: what they agree on is known, the rest is open."""
        sides = [one for one in missing.sides if _adds(one)][:_MOST_SIDES]
        read = [self._apart(one) for one in sides]
        if not any("model_name_or_path" in one.values for one in read):
            self.unsaid += read[0].unsaid if read else []
            if not self.is_open("model_name_or_path"):
                self._unknown_model(missing)
            if not read:
                return
        for one in read:
            work((1 + len(one.unsaid)) * (1 + len(self.unsaid)))
            self.homes = {**one.homes, **self.homes}
            self.unsaid += [open_key for open_key in one.unsaid if open_key not in self.unsaid]
            self.facts = {**one.facts, **self.facts}
        for key in dict.fromkeys(key for one in read for key in one.values):
            work(sum(len(one.spans) + len(one.assumed) + len(self.unsaid) for one in read))
            held = [one.values.get(key, False if key in calls.SWITCHES else None) for one in read]
            whole = all(key in one.values for one in read)
            if all(value == held[0] for value in held) or (not whole and key not in calls.DECIDING):
                first = next(one for one in read if key in one.values)
                self.values.setdefault(key, first.values[key])
                self.spans |= {path: span for path, span in first.spans.items() if path == (key,)}
                self.assumed += [note for note in first.assumed if note.about == key]
            elif key in self.said:
                self.values[key] = self.said[key]
            elif key not in self.values:
                self.unsaid.append(replace(unsaid_of(key, missing), either=tuple(held)))

    def _apart(self, model: Called) -> Self:
        """Return what one way to create the model says, read separately."""
        parts = {name: getattr(self, name) for name in ("found", "evaluator", "source", "said", "load")}
        other = type(self)(**parts)
        other.depth = self.depth + 1
        if other.depth < _MOST_SIDES:
            other.read_model(model)
        return other

    def _unknown_model(self, missing: Missing, *, made: bool = False) -> None:
        """Record that the model is unknown and, if a call creates it, that its adapter is unknown too."""
        self.unsaid.append(unsaid_of("model_name_or_path", missing))
        if made:
            self.facts["model made elsewhere"] = missing.line
        if "use_peft" not in self.values and (missing.sides or made):
            self.unsaid.append(unsaid_of("adapter", missing))

    def _cast(self, last: str, positional: list[Result], named: Mapping[str, Result]) -> None:
        """Record the dtype of the weights after `.bfloat16()` or `.to(torch.float16)`."""
        name = cast_by(last, positional, named)
        if name is not None and "dtype" not in self.values:
            self.values["dtype"] = name
            self.cast = True


def cast_by(method: str, positional: list[Result], named: Mapping[str, Result]) -> str | None:
    """Return the dtype that a method gives a model's weights; None if it leaves it unchanged."""
    given = [plain(one) for one in (*positional, *named.values())] if method == "to" else []
    types = [one.value for one in given if isinstance(one, Value) and one.value in calls.TYPES]
    return calls.CASTS.get(method) or (str(types[0]) if types else None)


def _adds(called: Called) -> bool:
    """Return whether a call does more than return the model it is given."""
    return called.last.partition("[")[0] not in calls.PASSES_ON
