"""Resolves gradient checkpointing as transformers turns it on, and its keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.arguments.values import Arguments
from vramwise.types import Unfollowed

KWARGS = "gradient_checkpointing_kwargs"


def resolve_checkpointing(args: Arguments, *, reentrant: bool = False, why: str = "transformers' default") -> None:
    """Fill gradient_checkpointing, recompute and checkpointing_reentrant. Needs sharding.

    `reentrant`: the form where the kwargs do not say, and `why`.
    """
    on = bool(args.value("gradient_checkpointing"))
    args.put("gradient_checkpointing", "gradient_checkpointing", on)
    if "recompute" in args.values:
        return  # FSDP's own, which sharding has settled
    args.derive("recompute", on, "gradient_checkpointing", key="gradient_checkpointing")
    written = checkpointing_kwargs(args).get("use_reentrant")
    if isinstance(written, bool):
        args.derive("checkpointing_reentrant", written, "use_reentrant is set", key=KWARGS)
    else:
        args.derive("checkpointing_reentrant", reentrant, why, key=KWARGS)


def checkpointing_kwargs(args: Arguments) -> Mapping[str, Any]:
    """The block, empty where there is none."""
    found = args.value(KWARGS)
    return found if isinstance(found, Mapping) else {}


def unfollowed_checkpointing(args: Arguments) -> Iterator[Unfollowed]:
    """Yield the options of the block that no prediction includes. Needs `recompute`."""
    if not args.values["recompute"]:
        return
    kwargs = checkpointing_kwargs(args)
    if kwargs.get("every_n_layers") not in (None, 1):
        why = "some blocks keep their activations; all are counted as checkpointed"
        yield Unfollowed(name=f"{KWARGS}.every_n_layers", less=False, why=why)
    if kwargs.get("offload"):
        why = "block inputs are kept in host memory; they are counted on the card"
        yield Unfollowed(name=f"{KWARGS}.offload", less=True, why=why)
