"""A card's own figures reach its kernels, and what is not known of it is said."""

import pytest

from vramwise.facts.gpus import all_gpus, find_gpu
from vramwise.ghost.hardware import Hardware, hardware_of, taken_for_granted


@pytest.mark.parametrize("card", all_gpus(), ids=lambda card: card.name)
def test_every_cards_own_multiprocessors_count_or_it_is_said(card):
    said = list(taken_for_granted(card))
    assert len(said) == (card.multiprocessors is None)
    assert all(
        f"{card.name} is assumed to have as many multiprocessors as an H200 (132)" in sentence for sentence in said
    )
    assert hardware_of(card, (2, 11)).multiprocessors == (card.multiprocessors or 132)


def test_a_bare_size_says_whose_multiprocessors_it_gets():
    card = find_gpu("24GB")
    assert hardware_of(card, (2, 11)) == Hardware(memory_bytes=card.memory_bytes)
    assert list(taken_for_granted(card)) == [
        "24GB is assumed to have as many multiprocessors as an H200 (132): its number is unknown"
    ]


def test_without_a_card_nothing_is_said_of_one():
    assert not list(taken_for_granted(None))


def test_a_card_that_resembles_an_h200_in_name_alone_gets_its_own_figures():
    assert hardware_of(find_gpu("rtx-3050"), (2, 11)).multiprocessors == 20
    assert hardware_of(find_gpu("mi300x"), (2, 11)).multiprocessors == 304
