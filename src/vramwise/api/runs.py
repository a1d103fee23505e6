"""`train` as a function."""

from __future__ import annotations

from vramwise.api.sources import PathLike
from vramwise.training.parent.prepare import TrainOptions
from vramwise.training.parent.run import train as train_config


def train(path: PathLike, options: TrainOptions | None = None) -> int:
    """Check, predict, prepare and train one config. Returns the exit code: 0 if it trained to the end."""
    return train_config(str(path), options)
