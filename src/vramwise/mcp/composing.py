"""A run that an agent describes by a few settings instead of a config."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vramwise.errors import VramwiseError
from vramwise.mcp.arguments import next_call
from vramwise.opening.options import Options, Text
from vramwise.opening.sources import Source
from vramwise.trainers.compose import composed, composing_trainers

_COUNT = Annotated[int | None, Field(ge=1)]


class Wished(BaseModel):
    """What is said of a run; what is left out is the trainer's default."""

    model_config = ConfigDict(extra="forbid")

    adapter: str = Field("none", description="Training method: lora, qlora, or none for a full fine-tune.")
    rank: _COUNT = Field(None, description="LoRA rank.")
    sequence_len: _COUNT = Field(None, description="Tokens per row.")
    micro_batch: _COUNT = Field(None, description="Rows per micro-batch on one card.")
    accumulation: _COUNT = Field(None, description="Micro-batches per optimizer step.")
    optimizer: str | None = Field(None, description="For example adamw_torch_fused or adamw_bnb_8bit.")
    checkpointing: bool | None = Field(None, description="Recompute activations in the backward pass.")
    attention: str | None = Field(None, description="sdpa, flash_attention_2 or eager.")
    packing: bool | None = Field(None, description="Pack several samples into a row.")
    fused_loss: bool | None = Field(None, description="Use a fused loss that never holds all logits.")
    eval_batch: _COUNT = Field(None, description="Evaluate, with this many rows per batch.")


WishedRun = Annotated[
    Wished | None,
    Field(
        description=f"Instead of a config: the run's main settings, for `trainer` ({', '.join(composing_trainers())})."
    ),
]
OptionalConfig = Annotated[
    str,
    Field(
        description=(
            "The text of the training config, YAML or JSON (not a path). Files it names are not read: inline a "
            "DeepSpeed config, and name the model by its hub id. Leave empty to describe the run with `model` and "
            "`run`."
        )
    ),
]


def predicted_source(config: str, model: str, run: Wished | None, options: Options) -> tuple[Source, Options]:
    """Return the given config, or one composed from the run's settings, and the options to read it with."""
    if config and run is not None:
        error = VramwiseError("config and run cannot be combined")
        raise next_call(error, "pass only one; to try other values of a config, use `changes`")
    if config:
        return Text(config), options
    wished = {} if run is None else run.model_dump(exclude_none=True)
    try:
        trainer, values = composed(model, wished, options.trainer)
    except VramwiseError as error:
        raise next_call(error, "pass config, or model (see list_models) with run") from error
    return values, replace(options, trainer=trainer)
