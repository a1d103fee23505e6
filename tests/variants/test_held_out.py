"""Data where a part is held out: the samples that `datasets` draws, and the batches that an evaluation of them has."""

import json

import pytest

from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.types import Schedule
from vramwise.variants.batches import eval_shapes
from vramwise.variants.held_out import divided
from vramwise.variants.lengths import Data, Lengths
from vramwise.variants.shuffling import numpy_permutation

# numpy 2.4: `default_rng(seed).permutation(count)`.
DRAWN = {
    (12, 42): (0, 7, 6, 9, 11, 3, 5, 2, 4, 10, 1, 8),
    (9, 2**40 + 7): (2, 7, 8, 6, 3, 4, 1, 5, 0),
}
PACKED = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 1000
sample_packing: true
pad_to_sequence_len: true
attn_implementation: flash_attention_2
micro_batch_size: 4
val_set_size: 0.05
datasets:
  - path: data.jsonl
    type: alpaca
"""


def run_of(text):
    return open_subject(Text(text), Options(gpu="h100", text_alone=True)).run


def both(lengths):
    return Data(train=lengths, evaluation=lengths)


@pytest.mark.parametrize(("count", "seed"), DRAWN)
def test_the_order_is_numpys(count, seed):
    assert numpy_permutation(count, seed) == DRAWN[count, seed]


@pytest.mark.parametrize("seed", [0, 42, 2**32, 2**130 + 5])
def test_the_order_is_that_of_the_installed_numpy(seed):
    numpy = pytest.importorskip("numpy")
    assert numpy_permutation(1000, seed) == tuple(numpy.random.default_rng(seed).permutation(1000))


def test_the_first_that_are_drawn_are_held_out():
    found = divided(both(Lengths(tokens=range(10, 22))), run_of(PACKED), Schedule(held_out=0.2, split_seed=42))
    assert found.evaluation.tokens == [10, 17, 16]
    assert found.train.tokens == [19, 21, 13, 15, 12, 14, 20, 11, 18]


def test_the_last_that_are_not_dropped_are_held_out():
    lengths = Lengths(tokens=[10, 11, 12, 13, 14, 15, 16, 17, 2000, 19, 20, 21])
    schedule = Schedule(held_out=2, split_seed=42, held_out_last=True)
    assert divided(both(lengths), run_of(PACKED), schedule).evaluation.tokens == [20, 11]


def test_both_rows_of_a_pair_and_their_labels_go_together():
    tokens = [row for number in range(12) for row in (100 + number, 200 + number)]
    lengths = Lengths(tokens=tokens, pairs=True, labelled=[one - 50 for one in tokens])
    found = divided(both(lengths), run_of(PACKED), Schedule(held_out=2, split_seed=42)).evaluation
    assert (found.tokens, found.labelled) == ([100, 200, 107, 207], [50, 150, 57, 157])


@pytest.mark.parametrize(
    ("data", "schedule"),
    [
        (both(Lengths(tokens=[1, 2, 3])), Schedule(split_seed=42)),
        (both(Lengths(tokens=[1, 2, 3])), Schedule(held_out=3, split_seed=42)),
        (both(Lengths(tokens=[1, 2, 3], whole=False)), Schedule(held_out=0.5, split_seed=42)),
        (Data(train=Lengths(tokens=[1, 2]), evaluation=Lengths(tokens=[3])), Schedule(held_out=0.5, split_seed=42)),
    ],
)
def test_data_stays_whole_where_nothing_is_or_can_be_held_out(data, schedule):
    assert divided(data, run_of(PACKED), schedule) is data


def test_where_every_run_draws_anew_any_padded_sample_may_be_evaluated():
    data = both(Lengths(tokens=range(10, 22)))
    padded = run_of(PACKED.replace("sample_packing: true", "sample_packing: false"))
    found = divided(data, padded, Schedule(held_out=3))
    assert (len(found.train.tokens), found.evaluation) == (9, data.evaluation)
    assert len(divided(data, run_of(PACKED), Schedule(held_out=3)).evaluation.tokens) == 3


def test_few_samples_of_an_axolotl_evaluation_fill_no_whole_batch():
    """As measured: 12 samples of an evaluation in batches of four filled three rows of the four."""
    run = run_of(PACKED)
    assert [(one.rows, one.width) for one in eval_shapes(run, Lengths(tokens=[250] * 9))] == [(1, 3 * 1024)]
    many = eval_shapes(run, Lengths(tokens=[900] * 9))
    assert [one.width for one in many] == [4096, 4096, 1024]


@pytest.mark.parametrize(("written", "seed"), [("test_size=0.25, seed=7", 7), ("test_size=0.25", None)])
def test_the_seed_of_a_scripts_split_is_read(tmp_path, monkeypatch, written, seed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps({"text": "word " * 9}) for _ in range(8)))
    (tmp_path / "train.py").write_text(
        "from datasets import load_dataset\n"
        "from trl import SFTConfig, SFTTrainer\n"
        'dataset = load_dataset("json", data_files="data.jsonl", split="train")\n'
        f"dataset = dataset.train_test_split({written})\n"
        'args = SFTConfig(output_dir="out", eval_strategy="epoch", packing=True)\n'
        'SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=dataset["train"], '
        'eval_dataset=dataset["test"]).train()\n'
    )
    subject = open_subject("train.py", Options(gpu="h100")).with_data()
    assert subject.trainer.schedule(subject.document).split_seed == seed
    assert [len(one.tokens) for one in (subject.divided.train, subject.divided.evaluation)] == [6, 2]
