"""A run that an agent says in a few words, in place of a config."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vramwise.errors import VramwiseError
from vramwise.mcp.arguments import next_call
from vramwise.options import Options, Text
from vramwise.subject import Source
from vramwise.trainers.compose import composed, composing_trainers

_COUNT = Annotated[int | None, Field(ge=1)]


class Wished(BaseModel):
    """What is said of a run; what is left out is the trainer's default."""

    model_config = ConfigDict(extra="forbid")

    adapter: str = Field("none", description="What is trained: lora, qlora, or none for every weight.")
    rank: _COUNT = Field(None, description="The adapter's rank.")
    sequence_len: _COUNT = Field(None, description="Tokens in a row.")
    micro_batch: _COUNT = Field(None, description="Rows at once on a card.")
    accumulation: _COUNT = Field(None, description="Micro-batches in an optimizer step.")
    optimizer: str | None = Field(None, description="Such as adamw_torch_fused or adamw_bnb_8bit.")
    checkpointing: bool | None = Field(None, description="Recompute activations in the backward pass.")
    attention: str | None = Field(None, description="sdpa, flash_attention_2 or eager.")
    packing: bool | None = Field(None, description="Fill rows with several samples.")
    fused_loss: bool | None = Field(None, description="A loss that never holds all logits.")
    eval_batch: _COUNT = Field(None, description="Evaluate, with so many rows at once.")


WishedRun = Annotated[
    Wished | None,
    Field(description=f"Without a config: the run in a few words, for `trainer` ({', '.join(composing_trainers())})."),
]
OptionalConfig = Annotated[
    str,
    Field(
        description="The training config itself, as YAML or JSON text (not a path). Files that it names are not read: "
        "write a DeepSpeed config inline, and name a model by its hub id. Empty: say the run with `model` and `run`."
    ),
]


def predicted_source(config: str, model: str, run: Wished | None, options: Options) -> tuple[Source, Options]:
    """The config that was given, or one that is made of the run's words; with the options that it is read by."""
    if config and run is not None:
        error = VramwiseError("config and run both say the run")
        raise next_call(error, "give one of them; try other values of a config with `changes`")
    if config:
        return Text(config), options
    wished = {} if run is None else run.model_dump(exclude_none=True)
    try:
        trainer, values = composed(model, wished, options.trainer)
    except VramwiseError as error:
        raise next_call(error, "give config, or model (see list_models) with run") from error
    return values, replace(options, trainer=trainer)
