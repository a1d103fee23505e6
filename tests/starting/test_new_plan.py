"""How long rows are and how many make a step, before any search."""

from vramwise.facts.gpus import find_gpu
from vramwise.models.known import from_catalogue
from vramwise.opening.options import NewOptions
from vramwise.trainers.axolotl import start
from vramwise.trainers.starting import unnamed
from vramwise.variants.lengths import NO_DATA, Data, Lengths
from vramwise.verbs.starting.plan import Plan

MODEL = "HuggingFaceTB/SmolLM2-135M"


def plan(tokens=None, gpus=1, card="rtx-4090", form="alpaca", **asked):
    return Plan(
        ask=NewOptions(model=MODEL, **asked),
        model=from_catalogue(MODEL),
        gpu=find_gpu(card),
        gpus=gpus,
        source=unnamed(form),
        starter=start,
        data=NO_DATA if tokens is None else Data(train=Lengths(tokens=tokens)),
    )


def test_rows_hold_99_of_100_samples():
    rows = plan([100] * 99 + [5000]).rows(packed=False)
    assert (rows.length, rows.longer, rows.a_step) == (128, 1, 16)
    assert plan([100] * 98 + [5000] * 2).rows(packed=False).longer == 0


def test_no_row_is_longer_than_the_model_takes():
    most = from_catalogue(MODEL).max_position_embeddings
    assert plan([10 * most] * 10).rows(packed=False).length == most


def test_packed_rows_keep_the_samples_of_a_step():
    rows = plan([100] * 1000, batch=64).rows(packed=True)
    assert rows.length == 2048
    assert 64 / 1.5 < rows.a_step * rows.samples_a_row < 64 * 1.5


def test_several_cards_share_a_step():
    assert plan(gpus=8).rows(packed=False).a_step == 16
    assert plan(gpus=8, batch=4).rows(packed=False).a_step == 8  # one row each at least


def test_little_data_is_seen_more_often_and_not_held_out():
    few, many = plan([100] * 100), plan([100] * 100_000)
    assert (few.epochs, few.held_out) == (3, 0.0)
    assert (many.epochs, many.held_out) == (1, 0.005)


def test_precision_follows_the_card():
    assert plan().precision("full") == "bf16"
    assert plan(card="t4").precision("lora") == "fp16"
    assert plan(card="t4").precision("full") == "fp32"
