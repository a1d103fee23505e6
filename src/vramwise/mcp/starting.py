"""The tool that writes a new config: from a model and a card to a text that fits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vramwise.errors import VramwiseError
from vramwise.mcp.arguments import Gpus, Versions, next_call, options_of, plain
from vramwise.mcp.results import Started
from vramwise.opening.options import NewOptions
from vramwise.render.new_text import new_json
from vramwise.trainers.starting import FORMATS
from vramwise.verbs.new import new, starting_trainers

_TRAINERS = ", ".join(starting_trainers())
_WORDS = "; ".join(f"{word}: {meaning}" for word, meaning in FORMATS.items())


def new_config(
    model: Annotated[str, Field(description="Hub id of the base model, e.g. Qwen/Qwen3-8B; see list_models.")],
    gpu: Annotated[str, Field(description="The card to fit, e.g. rtx-4090, 8xh100, or 24GB; list_gpus lists them.")],
    gpus: Gpus = 1,
    method: Annotated[
        Literal["auto", "full", "lora", "qlora"], Field(description="What to train; auto: the best of them that fits.")
    ] = "auto",
    trainer: Annotated[str, Field(description=f"The trainer the config is for: {_TRAINERS}. Empty: the first.")] = "",
    data_format: Annotated[str, Field(description=f"The format of the data, for its keys. {_WORDS}.")] = "alpaca",
    batch: Annotated[int, Field(description="Samples in an optimizer step.", ge=1, le=65536)] = 16,
    sequence_len: Annotated[int, Field(description="Tokens in a row; 0: a usual length.", ge=0)] = 0,
    script: Annotated[
        bool, Field(description="A Python script instead of a config (trl; unsloth always gets one).")
    ] = False,
    versions: Versions = [],  # noqa: B006
) -> Started:
    """Write a new fine-tuning config that starts and is predicted to fit a card, when there is no config yet.

    Method, batch, packing, checkpointing and kernels are chosen by the same search as fit_config; each line that
    matters has its reason as a comment. The data is a placeholder: put its path there. Takes seconds.
    """
    options = options_of(gpu, gpus, versions, trainer)
    ask = NewOptions(
        model=model,
        method=method,
        data_format=data_format,
        batch=batch,
        sequence_len=sequence_len or None,
        script=script or None,
        online=False,
    )
    try:
        found = new(ask, options)
    except VramwiseError as error:
        raise next_call(error, "correct that argument; call list_models for known models") from error
    shown = plain(new_json(found))
    then = "put the data's path in place of the placeholder, then call check_config"
    other = "another trainer or method" if found.only_stops else "a larger card or a smaller model"
    return Started(
        summary=shown["verdict"]["text"],
        fits=found.fits,
        config=found.text,
        method=found.method,
        launch=found.launch,
        new=shown,
        next=then if found.fits else f"call new_config with {other}",
    )
