"""What must lie on each card before any activation: weights, gradients and optimizer state, by the text alone."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.diagnosis.case import Case
from vramwise.units import readable

# Bytes of a parameter at the least: in 16 bits; in 4 bits with its scales; trained in 16 bits alone with AdamW.
_SIXTEEN_BITS, _FOUR_BITS, _TRAINED = 2.0, 0.53, 8.0
# Of an adapter's parameter: fp32 weights, gradients and AdamW's two values.
_ADAPTER_BYTES = 16
# Beyond this share of the card, nothing is left to compute in.
_NO_ROOM = 0.95
# An adapter that takes this share of the card is a reason in itself.
_LARGE_ADAPTER = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """What lies on a card for the whole run, at the least."""

    weights_bytes: int
    state_bytes: int  # gradients and optimizer state, and an adapter
    card_bytes: int
    cards: int
    adapter: bool
    whole: bool  # each process holds the whole model

    @property
    def too_large(self) -> bool:
        """Whether no room is left for activations, however small."""
        return not self.large_adapter and self.weights_bytes + self.state_bytes > _NO_ROOM * self.card_bytes

    @property
    def exceeds(self) -> bool:
        """Whether it is more than the card has."""
        return self.weights_bytes + self.state_bytes > self.card_bytes

    @property
    def weights_too_large(self) -> bool:
        """Whether the frozen weights alone leave no room."""
        return self.weights_bytes > _NO_ROOM * self.card_bytes

    @property
    def large_adapter(self) -> bool:
        """Whether the adapter's own state is a large part of the card, beside weights that nearly fill it."""
        much = self.adapter and self.state_bytes > _LARGE_ADAPTER * self.card_bytes
        return much and not self.weights_too_large and self.weights_bytes > _LARGE_ADAPTER * self.card_bytes

    @property
    def sentence(self) -> str:
        """What takes how much of which."""
        parts = [f"the weights take at least {readable(self.weights_bytes)}"]
        if self.state_bytes:
            parts.append(f"gradients and optimizer state {readable(self.state_bytes)}")
        return f"{' and '.join(parts)} of {'each card' if self.cards > 1 else 'the card'}'s {readable(self.card_bytes)}"


def resident_of(case: Case) -> Resident | None:
    """Return what lies on each card at the least; None if the text does not say enough, or a config says more."""
    setup, card = case.log.setup, case.card
    capacity = case.capacity or (card.memory_bytes if card is not None else 0)
    four_bits = setup.method == "qlora" or case.number("load_in_4bit") == 1
    count = max(case.parameters, int(setup.billions * 1e9) if four_bits else 0)
    if case.ghost is not None or not capacity or not count or setup.method is None:
        return None
    offloads = setup.offload or "offloading" in case.log.libraries
    stage = setup.zero_stage if case.cards > 1 else None
    all_sharded = (
        stage == 3 or "split" in setup.named or ((setup.fsdp or "fsdp" in case.log.libraries) and case.cards > 1)
    )
    if (offloads and all_sharded) or (all_sharded and case.cards < 2):
        return None  # what stays on the card then is a setting
    state = _ADAPTER_BYTES * case.number("trainable_params")
    # What a split run needs in all is what it would need on one card.
    alone = "split" in setup.named and setup.method != "full" and state > _LARGE_ADAPTER * capacity
    share = case.cards if all_sharded and not alone else 1
    if setup.method == "full":
        weights, state = int(_SIXTEEN_BITS * count), int((_TRAINED - _SIXTEEN_BITS) * count)
        state = 0 if offloads else state // (case.cards if stage in (1, 2) else 1)
    else:
        weights = int((_FOUR_BITS if four_bits else _SIXTEEN_BITS) * count)
    return Resident(
        weights_bytes=weights // share,
        state_bytes=state // share,
        card_bytes=capacity,
        adapter=setup.method != "full",
        cards=1 if alone else case.cards,
        whole=case.cards > 1 and share == 1 and stage not in (1, 2) and not alone,
    )
