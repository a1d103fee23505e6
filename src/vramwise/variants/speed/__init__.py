"""How long a step takes: the work of each kernel against a card's rates, and the host that launches them."""

from __future__ import annotations

from vramwise.variants.speed.bound import lower_bound_bytes
from vramwise.variants.speed.result import Speed, SpeedError
from vramwise.variants.speed.step import no_speed, speed_of

__all__ = ["Speed", "SpeedError", "lower_bound_bytes", "no_speed", "speed_of"]
