"""Optimizers: which states they make at the first step, and what a step takes for the time being. One file a kind."""

from __future__ import annotations

from typing import Protocol

from vramwise.ghost.optimizers.bitsandbytes import BitsAndBytes
from vramwise.ghost.optimizers.factored import Adafactor
from vramwise.ghost.optimizers.low_bit import LowBitAdam
from vramwise.ghost.optimizers.muon import Muon
from vramwise.ghost.optimizers.partitioned import MasterAdam
from vramwise.ghost.optimizers.torch_adam import ForeachAdam, FusedAdam
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Parameter, Tape
from vramwise.types import RunSpec


class Optimizer(Protocol):
    """What the trainer calls."""

    def step(self, t: Tape) -> None:
        """One update of all parameters that have a gradient."""
        ...


class HostStates:
    """States on the host: the device sees nothing of them."""

    def step(self, t: Tape) -> None:
        """Nothing happens here."""


def make_optimizer(run: RunSpec, trainable: list[Parameter], sharding: Sharding) -> Optimizer:
    """The optimizer of a run over its parameters, those with weight decay first."""
    if sharding.host_states:
        return HostStates()
    if sharding.master:
        return MasterAdam(trainable, sharding)
    decayed = [parameter for parameter in trainable if decays(parameter)]
    plain = [parameter for parameter in trainable if not decays(parameter)]
    ordered = decayed + plain
    name = run.optimizer.lower()
    if name in ("adamw_torch", "adamw_hf", "adamw", "adam"):
        return ForeachAdam([decayed, plain])
    if name in ("sgd", "optimi_sgd"):
        return ForeachAdam([decayed, plain], states=0, temporaries=0)
    if name == "rmsprop":
        return ForeachAdam([decayed, plain], states=1)
    if name == "adagrad":
        return ForeachAdam([decayed, plain], states=1, temporaries=2)
    if "adafactor" in name or "came" in name:
        return Adafactor(ordered)
    if name in ("adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8"):
        return LowBitAdam(ordered, bits=4 if "4bit" in name else 8)
    if "muon" in name:
        return Muon(ordered)
    if _is_bitsandbytes(name):
        return _bitsandbytes(name, ordered)
    return FusedAdam(ordered)


def is_known(name: str) -> bool:
    """Whether the memory of that optimizer is modelled; others are taken for fused AdamW."""
    name = name.lower()
    known = (
        "adamw_torch",
        "adamw_torch_fused",
        "adamw_hf",
        "adamw",
        "adam",
        "sgd",
        "rmsprop",
        "adagrad",
        "optimi_adamw",
    )
    parts = ("adafactor", "came", "muon", "adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw", "apex_fused")
    return name in known or any(part in name for part in parts) or _is_bitsandbytes(name)


def _is_bitsandbytes(name: str) -> bool:
    families = ("adamw", "lion", "ademamix", "rmsprop", "adagrad", "sgd")
    return name.startswith((*families, "paged_")) and any(part in name for part in ("bnb", "8bit", "32bit", "paged"))


def _bitsandbytes(name: str, parameters: list[Parameter]) -> BitsAndBytes:
    states = (
        3 if "ademamix" in name else 1 if any(part in name for part in ("lion", "rmsprop", "adagrad", "sgd")) else 2
    )
    bits = 8 if "8bit" in name else 32
    return BitsAndBytes(parameters, states=states, bits=bits, paged=name.startswith("paged"))


def decays(parameter: Parameter) -> bool:
    """Weight decay applies to all but biases and norms: they form a second group, stepped after the first."""
    name = parameter.name
    return not (name.endswith("bias") or "norm" in name.lower() or ".ln_" in name)
