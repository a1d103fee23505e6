"""Estimates the time of a training step from the work of each kernel, a GPU's rates and the host's launch times."""

from __future__ import annotations

from vramwise.variants.speed.step import Speed, SpeedError, no_speed, speed_of

__all__ = ["Speed", "SpeedError", "no_speed", "speed_of"]
