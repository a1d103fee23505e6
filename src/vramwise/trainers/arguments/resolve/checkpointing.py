"""Resolves gradient checkpointing as transformers turns it on, and its keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.arguments.values import Arguments
from vramwise.types import Unfollowed

KWARGS = "gradient_checkpointing_kwargs"
# transformers 5.23 renamed both; where a newer name is set, the older one has no effect.
_RENAMED = {"gradient_checkpointing": "activation_checkpointing", KWARGS: "activation_checkpointing_kwargs"}


def resolve_checkpointing(args: Arguments, *, reentrant: bool = False, why: str = "transformers' default") -> None:
    """Fill gradient_checkpointing, recompute and checkpointing_reentrant. Needs sharding.

    `reentrant`: the form where the kwargs do not say, and `why`.
    """
    key, kwargs = counting_name(args, "gradient_checkpointing"), counting_name(args, KWARGS)
    on = bool(args.value(key))
    args.put("gradient_checkpointing", key, on)
    if "recompute" in args.values:
        return  # FSDP's own, which sharding has settled
    args.derive("recompute", on, key, key=key)
    written = checkpointing_kwargs(args).get("use_reentrant")
    if isinstance(written, bool):
        args.derive("checkpointing_reentrant", written, "use_reentrant is set", key=kwargs)
    else:
        args.derive("checkpointing_reentrant", reentrant, why, key=kwargs)


def counting_name(args: Arguments, key: str) -> str:
    """The name that counts: the newer one where this version has it and the file sets it."""
    newer = _RENAMED[key]
    return newer if newer in args.words and args.value(newer) is not None else key


def checkpointing_kwargs(args: Arguments) -> Mapping[str, Any]:
    """The block, empty where there is none."""
    found = args.value(counting_name(args, KWARGS))
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
