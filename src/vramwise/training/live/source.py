"""Live objects as a source for the verbs: a trainer, or the model, optimizer and batch of a loop of one's own."""

from __future__ import annotations

from typing import Any

from vramwise.errors import VramwiseError
from vramwise.opening.options import Live
from vramwise.trainers.scripts import calls
from vramwise.training.live.facts import Facts, facts_of, reference_facts
from vramwise.training.live.model import inner, quantised, spec_of
from vramwise.training.live.room import room_for
from vramwise.training.live.rows import data_of, lengths_of
from vramwise.training.live.script import (
    arguments_of,
    checkpointing,
    class_of,
    name_of,
    optimizer_name,
    script_of,
)
from vramwise.types import ModelSpec
from vramwise.variants.lengths import Data

# A step of these classes does not compute what the library's own does.
_OWN_STEPS = ("compute_loss", "training_step", "create_optimizer", "prediction_step")
_CASTS = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}


def of_trainer(trainer: Any) -> Live:
    """Return a transformers or TRL trainer, made and not yet started. Nothing of it is changed.

    Raises VramwiseError for other objects.
    """
    library = class_of(trainer, calls.TRAINERS)
    config = class_of(trainer.args, calls.CONFIGS)
    if library is None or config is None:
        raise VramwiseError(
            f"{type(trainer).__name__} extends no known trainer ({', '.join(calls.TRAINERS)}): for a loop of your own, "
            "pass model=…, optimizer=… and batch=…"
        )
    model = trainer.model
    arguments = arguments_of(trainer.args, config)
    checkpointing(model, arguments)
    optimizer = getattr(trainer, "optimizer", None)
    if optimizer is not None:
        arguments["optim"] = optimizer_name(optimizer)
    arguments.setdefault("output_dir", str(trainer.args.output_dir))
    if "cuda" not in str(trainer.args.device):
        arguments.pop("use_cpu", None)  # the question is what it takes on a card
    data = data_of(trainer)
    facts = _length(data) if not calls.TRAINERS[library.__name__][1] else {}
    facts |= reference_facts(trainer)
    text = script_of(
        model,
        library.__name__,
        arguments,
        config.__name__,
        reference=getattr(trainer, "ref_model", None) is not None,
    )
    live = _live(text, model, facts, data, _own_steps(trainer, library))
    return _with_room(live, model, getattr(trainer, "ref_model", None), optimizer)


def of_loop(
    model: Any, *, optimizer: Any = None, batch: Any = None, autocast: Any = None, accumulation: int = 1
) -> Live:
    """Return a loop of one's own: each step takes `accumulation` batches like this one, then the optimizer."""
    if not hasattr(model, "named_parameters"):
        raise VramwiseError(f"model= is {type(model).__name__}: pass the model's name, or the model itself")
    if not hasattr(inner(model), "config"):
        raise VramwiseError(f"{type(inner(model)).__name__} is no model of transformers: only those are predicted")
    lengths = None if batch is None else lengths_of(batch)
    if batch is not None and lengths is None:
        raise VramwiseError("this batch has no input_ids of two dimensions: pass what the model is called with")
    cast = None if autocast is None else _CASTS.get(str(autocast))
    if autocast is not None and cast is None:
        raise VramwiseError(f"autocast={autocast}: expected torch.bfloat16 or torch.float16")
    arguments: dict[str, Any] = {
        "output_dir": "loop",
        "per_device_train_batch_size": 1 if lengths is None else lengths.drawn[0].rows,
        "gradient_accumulation_steps": accumulation,
        "optim": "adamw_torch" if optimizer is None else optimizer_name(optimizer),
        "max_grad_norm": 0.0,
        **({} if cast is None else {cast: True}),
    }
    checkpointing(model, arguments)
    data = Data(train=lengths)
    facts = _length(data)
    facts["trainer_title"] = ("a loop of its own", "")
    notes = ["the loop clips no gradients and takes batches of this shape only"]
    live = _live(script_of(model, "Trainer", arguments, "TrainingArguments"), model, facts, data, notes)
    live.ends = False
    return _with_room(live, model, optimizer)


def _live(text: str, model: Any, facts: Facts, data: Data, notes: list[str]) -> Live:
    live = Live(text)
    live.data = data
    base = inner(model)
    try:
        live.model = _described(base)
        found, more = facts_of(model, live.model)
        facts |= found
        notes += more
    except VramwiseError as error:
        if live.model is not None:
            raise
        live.model_missing = str(error)
    if next(base.parameters()).device.type == "cpu" and quantised(base)[0] is None:
        facts["loads_through"] = ("host", "the model is in host memory until the trainer moves it")
    live.facts, live.notes = facts, tuple(notes)
    return live


def _with_room(live: Live, *held: Any) -> Live:
    live.limit_bytes, said = room_for(one for one in held if one is not None)
    live.notes = (*live.notes, *filter(None, [said]))
    return live


def _described(base: Any) -> ModelSpec:
    """Return the model's dimensions, from its own code where its class is not one of transformers."""
    found, error = None, None
    try:
        found = spec_of(base, name_of(base))
    except VramwiseError as problem:
        error = problem
    if found is None or found.family_assumed or not type(base).__module__.startswith("transformers."):
        from vramwise.training.live.tracing import traced

        try:
            return traced(base, name_of(base))
        except VramwiseError as problem:
            error = error or problem
    if found is None:
        raise error or VramwiseError("the model's dimensions are unknown")
    return found


def _length(data: Data) -> Facts:
    """Return the row length of a trainer that leaves it to the script: the widest that was drawn."""
    if data.train is None:
        return {}
    shapes = data.train.drawn
    return {"sequence_len": (max(shape.width for shape in shapes), "the widest row of the trainer's own batches")}


def _own_steps(trainer: Any, library: type) -> list[str]:
    """Return what a subclass computes itself, in a sentence."""
    own = [name for name in _OWN_STEPS if getattr(type(trainer), name, None) is not getattr(library, name, None)]
    if not own:
        return []
    return [f"{type(trainer).__name__} has its own {', '.join(own)}: predicted as {library.__name__}'s"]
