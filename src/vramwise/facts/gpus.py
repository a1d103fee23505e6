"""Cards by name: memory, CUDA capability, multiprocessors, and which dtypes they compute natively.

The catalogue is gpus.json. Names may be spelled in many ways; a bare size such as 24GB is a card about which nothing
else is known. Does not know which card this machine has (nvml.py) nor how fast a card is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.errors import VramwiseError
from vramwise.types import GpuSpec
from vramwise.units import GIB, MIB, gib, parse_size

# Without a known total, driver and firmware are assumed to keep 1.5 % and 0.35 GiB (7.5 % if error correction uses the
# same memory). That is the lower edge of the known totals: below every one of them, by at most 5 %.
_KEPT_SHARE = 0.015
_KEPT_SHARE_ECC = 0.075
_KEPT_GIB = 0.35
# No card's name is longer; messages truncate longer ones.
_LONGEST_NAME = 80

# Words that vendors, drivers and shops add to a name. They never distinguish two cards.
_NOISE = re.compile(r"\b(nvidia|geforce|amd|instinct|radeon|tesla|gpu|graphics|card|generation)\b|\((tm|r)\)")
_SERIES = re.compile(r"^(rtx|gtx|rx)(?=\d{4})")
_SEVERAL = re.compile(r"^\s*(?P<count>[1-9]\d{0,5})\s*[x×*]\s*(?P<name>.*?)\s*$", re.IGNORECASE)
_SIZE = re.compile(r"^\s*\d+(\.\d+)?\s*[kmg]i?b?\s*$", re.IGNORECASE)


def find_gpu(name: str) -> GpuSpec:
    """Return the card with this name, or for a size such as 24GB a card with that much memory (`known=False`).

    Raises VramwiseError for an unknown name.
    """
    card = _cards_by_spelling().get(_squashed(name))
    if card is not None:
        return replace(_spec(card), taken_for=_left_open(name, card))
    if _SIZE.match(name):
        return _bare_size(name)
    raise VramwiseError(_unknown(name))


def find_gpus(words: str) -> tuple[int | None, GpuSpec]:
    """Return the number of cards (None if not given) and the card: `8xH100`, `2 x 24GB`.

    Raises VramwiseError for an unknown name.
    """
    found = _SEVERAL.match(words)
    if found is None:
        return None, find_gpu(words)
    if not found["name"]:
        raise VramwiseError(f"'{words}' is not a card: write the number and card as one word, such as {words}rtx-4090")
    return int(found["count"]), find_gpu(found["name"])


def all_gpus() -> tuple[GpuSpec, ...]:
    """Return every card of the catalogue, in its order."""
    return tuple(_spec(card) for card in _catalogue()["cards"])


def discrete_gpus() -> tuple[GpuSpec, ...]:
    """Return the cards with dedicated memory.

    Jetson and DGX Spark share theirs with the host, so how much is free varies.
    """
    return tuple(_spec(card) for card in _catalogue()["cards"] if not card.get("shared"))


def matching_gpus(words: Sequence[str]) -> tuple[GpuSpec, ...]:
    """Return the cards that match all words: part of a name, `sm_90`, `amd`, `bf16`, `fp8`, or a minimum size."""
    cards = [(_spec(card), card["memory_gib"]) for card in _catalogue()["cards"]]
    return tuple(card for card, sold_gib in cards if all(_fits_word(card, sold_gib, word) for word in words))


def _fits_word(card: GpuSpec, sold_gib: int, word: str) -> bool:
    wanted = word.lower().strip()
    if _SIZE.match(wanted):
        return sold_gib * GIB >= parse_size(wanted)
    if wanted in ("nvidia", "amd"):
        return card.vendor == wanted
    if wanted in ("bf16", "fp8"):
        return card.bf16 if wanted == "bf16" else card.fp8
    if wanted.startswith("sm_"):
        return card.capability is not None and wanted == f"sm_{card.capability[0]}{card.capability[1]}"
    return _squashed(word) in _squashed(card.name)


def multiprocessors_of(name: str) -> int | None:
    """Return the number of multiprocessors of a card by name; None if unknown."""
    return _cards_by_spelling().get(_squashed(name), {}).get("multiprocessors")


def nvidia_spec(
    *, name: str, memory_bytes: int, capability: tuple[int, int], multiprocessors: int | None = None
) -> GpuSpec:
    """Return an NVIDIA card with this capability: bf16 is native from 8.0 on, fp8 from 8.9 on."""
    return GpuSpec(
        name=name,
        vendor="nvidia",
        memory_bytes=memory_bytes,
        capability=capability,
        bf16=capability >= (8, 0),
        fp8=capability >= (8, 9),
        multiprocessors=multiprocessors,
    )


def usable_bytes(card: dict[str, Any]) -> int:
    """Return the memory torch can use: the total it reported, otherwise an estimate from the stated memory."""
    if "usable_mib" in card:
        return int(card["usable_mib"]) * MIB
    return derived_bytes(card)


def derived_bytes(card: dict[str, Any]) -> int:
    """Return a conservative estimate from the stated memory alone."""
    share = _KEPT_SHARE_ECC if card.get("ecc") else _KEPT_SHARE
    return int((card["memory_gib"] * (1 - share) - _KEPT_GIB) * 1024) * MIB


def _spec(card: dict[str, Any]) -> GpuSpec:
    arch, count = card["arch"], card.get("multiprocessors")
    if arch.startswith("sm_"):
        capability = (int(arch[3:-1]), int(arch[-1]))
        return nvidia_spec(
            name=card["name"], memory_bytes=usable_bytes(card), capability=capability, multiprocessors=count
        )
    return GpuSpec(
        name=card["name"],
        vendor="amd",
        memory_bytes=usable_bytes(card),
        capability=None,
        multiprocessors=count,
        **_catalogue()["amd_architectures"][arch],
    )


def _bare_size(text: str) -> GpuSpec:
    size_bytes = parse_size(text)
    if size_bytes < GIB:
        raise VramwiseError(f"'{text}' is too small for a GPU: write its memory like 24GB")
    shown = f"{size_bytes / GIB:g}GB"
    return GpuSpec(
        name=shown,
        vendor="nvidia",
        memory_bytes=size_bytes,
        capability=None,
        bf16=True,
        fp8=False,
        known=False,
        taken_for=_size_left_open(shown, size_bytes),
    )


def _size_left_open(shown: str, size_bytes: int) -> str:
    """Return a note that cards sold with this size have less usable memory."""
    sold = [usable_bytes(card) for card in _catalogue()["cards"] if card["memory_gib"] * GIB == size_bytes]
    taken = f"{shown} is treated as {gib(size_bytes)} usable by torch"
    if not sold:
        return f"{taken}: name the card for the exact value"
    return f"{taken}; cards sold as {shown} have {min(sold) / GIB:.1f} to {gib(max(sold))} usable: name the card"


def _left_open(name: str, card: dict[str, Any]) -> str:
    """Return a note if cards of several sizes share this name; otherwise ""."""
    bare = re.compile(rf"(rtx|gtx|rx)?{_squashed(name)}[1-9]\d*gb")
    others = [
        other["name"]
        for other in _catalogue()["cards"]
        if other["memory_gib"] != card["memory_gib"] and bare.fullmatch(_squashed(other["name"]))
    ]
    if not others:
        return ""
    return f"'{name}' is treated as {card['name']}: {' and '.join(others)} must be named in full"


@cache
def _catalogue() -> dict[str, Any]:
    found: dict[str, Any] = bundled_json("facts/gpus.json")
    return found


@cache
def _cards_by_spelling() -> dict[str, dict[str, Any]]:
    """Map squashed spellings to cards. Exact spellings win over those without a series or with a size."""
    exact = _exact_spellings()
    loose: dict[str, dict[str, Any]] = {}
    for spelling, card in exact.items():
        for other in _variants(spelling, card):
            loose.setdefault(other, card)
    return loose | exact


@cache
def _exact_spellings() -> dict[str, dict[str, Any]]:
    cards: list[dict[str, Any]] = _catalogue()["cards"]
    return {_squashed(written): card for card in cards for written in [card["name"], *card.get("aliases", [])]}


def _variants(spelling: str, card: dict[str, Any]) -> Iterator[str]:
    """Yield other spellings: `rtx4090` is also `4090`, `rtx409024gb`, `409024gb`, `rtx409024`.

    `a10080gb` is also `a10080`.
    """
    size = f"{card['memory_gib']}gb"
    for base in {spelling, _SERIES.sub("", spelling)}:
        yield base
        if not base.endswith("gb"):
            yield base + size
            yield base + size.removesuffix("gb")
        elif base.endswith(size):
            yield base.removesuffix("gb")


def _squashed(name: str) -> str:
    """Return the name in lower case without noise words, spaces and dashes.

    `NVIDIA GeForce RTX 4090` → `rtx4090`; sizes end in gb.
    """
    words = _NOISE.sub(" ", name.lower().replace("_", " ").replace("-", " "))
    squashed = re.sub(r"[^a-z0-9]", "", words)
    return re.sub(r"(\d)gi?b?$", r"\1gb", squashed)


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    wanted = _squashed(name[:_LONGEST_NAME])
    names_by_spelling = {_squashed(card["name"]): card["name"] for card in _catalogue()["cards"]}
    # Without spellings that end in a size: `24` is not a misspelt `l424`.
    names_by_spelling |= {
        spelling: card["name"]
        for spelling, card in _cards_by_spelling().items()
        if not spelling.endswith(("gb", str(card["memory_gib"])))
    }
    close = get_close_matches(wanted, names_by_spelling, n=12, cutoff=0.65)
    # Swapped digits are more common than wrong ones: `rtx-4900` means the 4090.
    close.sort(key=lambda spelling: sorted(spelling) != sorted(wanted))
    names = list(dict.fromkeys(names_by_spelling[spelling] for spelling in close))[:3]
    meant = f" Did you mean {' or '.join(names)}?" if names else " `vramwise gpus` lists the names."
    shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return f"unknown GPU '{shown}'.{meant} You can also give a size: 24GB"
