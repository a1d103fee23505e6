"""Reads how a script loads its model: the call's arguments, quantisation, and the adapter."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.documents.python.results import Called, Entries, Missing, Record, Result, Value, plain
from vramwise.trainers.scripts import calls
from vramwise.trainers.scripts.collected import Collected, is_true, made_elsewhere, unsaid_of

EMPTY = "the model's name is empty until the command line gives one"


class Loads(Collected):
    """Reads `from_pretrained`, BitsAndBytesConfig and LoraConfig."""

    __slots__ = ()

    def _quantized(self, config: Result) -> None:
        if isinstance(config, Called) and config.last == "BitsAndBytesConfig":
            self.home("quantization", config)
            self.assume("quantization", *config.notes)
            _, named, unknown = self.evaluator.arguments(config)
            self.lacking("quantization", unknown)
            for argument, key in calls.ARGUMENTS["quantization"].items():
                if argument in named:
                    self.add(key, named[argument], role="quantization", argument=argument)
        elif isinstance(config, Value):
            self.assume("quantization", *config.notes)
        elif isinstance(config, Missing):
            self.unsaid.append(unsaid_of("quantization", config))
        elif isinstance(config, Called) and config.last == "get_quantization_config":
            self._of_command_line(config, tuple(calls.SWITCHES - {"use_peft"}))
        elif isinstance(config, Called) and not self._dequantized(config):
            self.unsaid.append(made_elsewhere("quantization", config))

    def _dequantized(self, config: Called) -> bool:
        """Return whether a config such as `Mxfp4Config(dequantize=True)` loads plain weights."""
        return is_true(self.evaluator.arguments(config)[1].get("dequantize"))

    def read_adapter(self, config: Result) -> None:
        """Read a LoraConfig; missing settings have PEFT's defaults, not those of TRL's command."""
        if isinstance(config, Missing):
            self.unsaid.append(unsaid_of("adapter", config))
            return
        if isinstance(config, Called) and config.last == "get_peft_config":
            self._of_command_line(config, ("use_peft", *calls.ARGUMENTS["lora"].values()))
            return
        if not isinstance(config, Called):
            return
        if not config.last.endswith("LoraConfig"):
            self.put("use_peft", True)
            self.unsaid.append(made_elsewhere("adapter", config))
            return
        self.put("use_peft", True)
        self.assume("use_peft", *config.notes)
        self.home("lora", config)
        _, named, unknown = self.evaluator.arguments(config)
        self.lacking("adapter", unknown)
        for argument, key in calls.ARGUMENTS["lora"].items():
            if argument in named:
                self.add(key, named[argument], role="lora", argument=argument)
        for key, default in calls.LORA_DEFAULTS.items():
            if not self.is_open(key):
                self.put(key, default)

    def _of_command_line(self, config: Called, keys: tuple[str, ...]) -> None:
        """Read TRL's `get_peft_config` and `get_quantization_config`: the command line's model settings."""
        positional, _, _ = self.evaluator.arguments(config)
        held = positional[0] if positional else None
        if isinstance(held, Called | Record):
            items = held.assigned if isinstance(held, Called) else held.items
            for key in keys:
                if key in items:
                    self.add(key, items[key])

    def read_unsloth_adapter(self, called: Called, named: Mapping[str, Result]) -> None:
        """Read Unsloth's `get_peft_model`; missing settings have the trainer's own defaults."""
        self.unsloth = True
        self.home("lora", called)
        self.put("use_peft", True)
        for argument, key in calls.UNSLOTH_ARGUMENTS["lora"].items():
            if argument in named:
                self.add(key, named[argument], role="lora", argument=argument)

    def _unsloth_loaded(self, called: Called, owner: str) -> None:
        if owner in calls.UNSLOTH_COMPILED:
            self.put("fast_model", True)
        if owner == "FastVisionModel":
            self.facts["vision"] = called.node.lineno

    def read_prepared(self, called: Called, named: Mapping[str, Result]) -> None:
        """Read PEFT's preparation of a quantised base.

        It also turns checkpointing on, unless an argument says otherwise.
        """
        self.facts["prepared"] = called.node.lineno
        off = named.get("use_gradient_checkpointing")
        if off is None or is_true(off):
            self.facts["prepared with checkpointing"] = called.node.lineno

    def read_loading(self, named: Mapping[str, Result], role: str = "") -> None:
        """Read the arguments of `from_pretrained`, from the call or from a mapping."""
        listed = calls.UNSLOTH_ARGUMENTS if self.unsloth else calls.ARGUMENTS
        for argument, key in listed["model"].items():
            if argument in named and key != "model_name_or_path" and not (key == "dtype" and self.cast):
                self.add(key, named[argument], role=role, argument=argument)
        flash = named.get("use_flash_attention_2")
        if flash is not None and isinstance(held := plain(flash), Value) and held.value:
            self.put("attn_implementation", "flash_attention_2")
        if calls.QUANTIZATION in named:
            self._quantized(named[calls.QUANTIZATION])

    def read_init(self, kwargs: Result) -> None:
        """Read `model_init_kwargs`: arguments of the `from_pretrained` that the trainer calls."""
        if isinstance(kwargs, Entries):
            self.read_loading(kwargs.items)
        elif isinstance(kwargs, Missing):
            self.unsaid.append(unsaid_of("model", kwargs))

    def _named_model(self, name: Result, argument: str) -> None:
        if isinstance(name, Value) and not name.value:
            name = Missing(name="model_name_or_path", line=self.homes["model"].line, why=EMPTY)
        self.add("model_name_or_path", name, role="model", argument=argument)

    def _model_name(self, result: Result) -> Result:
        """Return the model behind a config object or a downloaded folder; other results unchanged."""
        if isinstance(result, Called) and result.last in ("from_pretrained", "from_dict", "snapshot_download"):
            positional, named, _ = self.evaluator.arguments(result)
            names = [named[one] for one in ("repo_id", "model_id") if one in named]
            return next(iter((*positional, *names)), result)
        return result

    def _head(self, called: Called, owner: str, named: Mapping[str, Result]) -> None:
        """Record what the model's class says about its head: classes, and how many, or a decoder behind an encoder."""
        head = next((head for ending, head in calls.HEADS.items() if owner.endswith(ending)), None)
        if head is not None:
            self.facts[head] = called.node.lineno
            number = plain(named["num_labels"]) if "num_labels" in named else None
            if isinstance(number, Value) and isinstance(number.value, int):
                self.facts["class labels"] = number.value
        if owner.endswith(calls.TWO_STACKS):
            self.facts["two stacks"] = called.node.lineno

    def read_loaded(self, called: Called, owner: str, positional: list[Result], named: Mapping[str, Result]) -> None:
        """Read `from_pretrained`: the model's name, dtype, quantisation and attention."""
        self.unsloth = self.unsloth or owner in calls.UNSLOTH_MODELS
        self.home("model", called)
        names = ("pretrained_model_name_or_path", "model_name", "model_id", "config")
        name = next((named[one] for one in names if one in named), positional[0] if positional else None)
        if name is not None:
            argument = next((one for one in names if one in named), "")
            self._named_model(self._model_name(name), argument)
        self.read_loading(named, role="model")
        self._head(called, owner, named)
        if self.unsloth:
            self._unsloth_loaded(called, owner)
        elif "dtype" not in self.values:
            self.facts["no dtype"] = called.node.lineno
        if "device_map" in named:
            self.facts["device_map"] = called.node.lineno
            spread = plain(named["device_map"])
            if isinstance(spread, Value) and spread.value in calls.SPREADS:
                self.facts["device_map spread"] = called.node.lineno
