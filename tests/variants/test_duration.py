"""How long a training takes: steps by the schedule and the data."""

import pytest

from fits import subject_on
from vramwise.types import Schedule
from vramwise.variants.duration import duration
from vramwise.variants.lengths import Lengths
from vramwise.variants.speed import Speed

SPEED = Speed(step_seconds=36.0, tokens_per_second=1000.0)  # a hundred steps an hour
PADDED = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 1000
micro_batch_size: 2
gradient_accumulation_steps: 5
num_epochs: 3
val_set_size: 0.1
"""


@pytest.fixture(scope="module")
def run():
    return subject_on("rtx-4090", PADDED).run


def of(run, schedule, lengths):
    return duration(run, schedule, lengths, SPEED)


def test_steps_that_are_counted_need_no_data(run):
    found = of(run, Schedule(epochs=3.0, max_steps=50), None)
    assert (found.steps, found.hours, found.basis) == (50, 0.5, "50 steps")


def test_nothing_is_said_without_steps_and_without_data(run):
    assert of(run, Schedule(epochs=3.0), None) is None


def test_epochs_of_samples_in_effective_batches(run):
    found = of(run, Schedule(epochs=2.0), Lengths(tokens=[100] * 101))
    assert found.steps == 22  # 101 samples an epoch, ten a step
    assert found.basis == "2 epochs of 101 samples"
    assert not found.at_least


def test_what_is_held_out_or_too_long_is_not_trained_on(run):
    lengths = Lengths(tokens=[100] * 90 + [2000] * 10)
    assert of(run, Schedule(), lengths).steps == 9
    assert of(run, Schedule(held_out=0.5), lengths).basis == "1 epoch of 45 samples"
    assert of(run, Schedule(held_out=20), lengths).basis == "1 epoch of 70 samples"
    assert of(run.changed(long_rows="cut"), Schedule(), lengths).steps == 10


def test_packed_rows_hold_several_samples(run):
    packed = run.changed(packing_rows="one")
    assert of(packed, Schedule(), Lengths(tokens=[100] * 1000)).steps == 10


def test_pairs_are_one_sample_each(run):
    assert of(run, Schedule(), Lengths(tokens=[100, 50] * 40, pairs=True)).steps == 4


def test_data_that_was_read_in_part_gives_a_lower_bound(run):
    assert of(run, Schedule(), Lengths(tokens=[100] * 10, whole=False)).at_least


def test_the_schedule_is_read_from_the_config():
    subject = subject_on("rtx-4090", PADDED)
    drawn = {"split_seed": 42, "held_out_last": True}
    assert subject.trainer.schedule(subject.document) == Schedule(epochs=3.0, held_out=0.1, **drawn)
    odd = subject_on("rtx-4090", PADDED + "max_steps: 0\ntest_datasets:\n  - path: x\n    type: alpaca\n")
    assert odd.trainer.schedule(odd.document) == Schedule(epochs=3.0, **drawn)
    counted = subject_on("t4", "base_model: Qwen/Qwen2.5-0.5B\nmax_steps: 7\n")
    assert counted.trainer.schedule(counted.document) == Schedule(max_steps=7, **drawn)
