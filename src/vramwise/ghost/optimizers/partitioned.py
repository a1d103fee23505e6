"""ZeRO's optimizer: fp32 master weights and two Adam states of this rank's share, made when the run starts stepping."""

from __future__ import annotations

from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Parameter, Storage, Tape


class MasterAdam:
    """Flat partitions: twelve bytes for every element of the share, and an fp32 copy of its gradient during a step."""

    def __init__(self, parameters: list[Parameter], sharding: Sharding) -> None:
        self.elements = sharding.share(sum(parameter.numel for parameter in parameters), of=sharding.states)
        self.states: list[Storage] = []

    def step(self, t: Tape) -> None:
        """Master copy and states at the first step; the gradient's copy at every one."""
        t.mark("optimizer", "partitioned states")
        if not self.states:
            self.states = [Storage(t, self.elements * 4) for _ in range(3)]
        t.mark("temporary", "fp32 gradients of the partition")
        Storage(t, self.elements * 4)
