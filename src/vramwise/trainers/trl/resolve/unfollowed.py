"""Features of a TRL run that no prediction includes; they are reported with the figures."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.arguments.resolve.checkpointing import KWARGS, checkpointing_kwargs, unfollowed_checkpointing
from vramwise.trainers.installed import unfollowed_experts
from vramwise.types import Stack, Unfollowed


def resolve_unfollowed(args: Arguments, stack: Stack) -> None:
    """Fill unfollowed. Needs checkpointing and the kind of training."""
    found = (*_found(args), *unfollowed_experts(args.values, stack))
    why = "; ".join(f"{one.name}: {one.why}" for one in found) or "no known option"
    args.derive("unfollowed", found, why)


def _found(args: Arguments) -> Iterator[Unfollowed]:
    if args.values["recompute"] and checkpointing_kwargs(args).get("selective"):
        why = "the attention output is kept; the whole block is counted as recomputed"
        yield Unfollowed(name=f"{KWARGS}.selective", less=False, why=why)
    yield from unfollowed_checkpointing(args)
    if args.value("router_aux_loss_coef"):
        why = "router logits of all layers are kept"
        yield Unfollowed(name="router_aux_loss_coef", less=False, why=why, experts_only=True)
