"""Packed batches against those that TRL's and LLaMA-Factory's own code made of the same lengths, batch by batch."""

import json
from pathlib import Path

import pytest

from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.variants.batches import eval_shapes, train_shapes
from vramwise.variants.lengths import Lengths
from vramwise.variants.packing import Piece, packed_rows
from vramwise.variants.shuffling import permutation

DATA = Path(__file__).parents[1] / "data"
TRL = json.loads((DATA / "packed-trl-1.16.0.json").read_text())
LLAMAFACTORY = json.loads((DATA / "packed-llamafactory-0.9.5.json").read_text())


def run_of(text):
    return open_subject(Text(text), Options(text_alone=True)).run


def trl_run(case, **more):
    keys = {
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "dataset_name": "some/data",
        "output_dir": "out",
        "packing": True,
        "packing_strategy": case["strategy"],
        "max_length": case["longest"],
        "per_device_train_batch_size": case["rows"],
        "per_device_eval_batch_size": case["rows"],
        "eval_strategy": "steps",
        "seed": case["seed"],
        "attn_implementation": "flash_attention_2",
    }
    return run_of(json.dumps(keys | more))


@pytest.mark.parametrize("case", TRL, ids=[f"{case['strategy']}-{case['longest']}" for case in TRL])
def test_batches_are_trls_own(case):
    run, lengths = trl_run(case), Lengths(tokens=case["lengths"], labelled=case["labelled"])
    for made, shapes in (("train", train_shapes(run, lengths)), ("eval", eval_shapes(run, lengths))):
        assert [[shape.rows, shape.width, shape.labelled] for shape in shapes] == case[made]


def test_a_text_that_is_cut_into_rows_pads_the_batch_of_its_short_end():
    case = next(case for case in TRL if case["strategy"] == "wrapped")
    shapes = train_shapes(trl_run(case), Lengths(tokens=case["lengths"]))
    short = [shape for shape in shapes if shape.padded]
    assert 1 <= len(short) <= 2  # two lots of samples, of a thousand and the rest
    assert all(shape.width == case["longest"] for shape in shapes)
    assert not train_shapes(trl_run(case), None)[0].padded


@pytest.mark.parametrize("case", LLAMAFACTORY, ids=[str(case["longest"]) for case in LLAMAFACTORY])
def test_rows_are_llamafactorys_own(case):
    text = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: x\n"
        f"packing: true\nneat_packing: true\nflash_attn: fa2\ncutoff_len: {case['longest']}\nbf16: true\n"
        f"per_device_train_batch_size: 1\nseed: {case['seed']}\npreprocessing_batch_size: {case['together']}\n"
    )
    shapes = train_shapes(run_of(text), Lengths(tokens=case["lengths"]))
    assert [[shape.rows, shape.width] for shape in shapes] == case["train"]
    full = train_shapes(run_of(text.replace("fa2", "sdpa")), Lengths(tokens=case["lengths"]))
    assert {(shape.rows, shape.width) for shape in full} == {(1, -(-case["longest"] // 8) * 8)}


def test_no_token_is_lost_and_no_row_too_long():
    pieces = [Piece(7 * number % 90 + 1, 1) for number in range(700)]
    run = trl_run({**TRL[0], "longest": 64, "strategy": "bfd_split"})
    for fill, tokens in (("best_fit_split", sum), ("stream", sum)):
        rows = packed_rows(run.changed(packing_fill=fill), pieces)
        assert sum(row.tokens for row in rows) == tokens(piece.tokens for piece in pieces)
        assert max(row.tokens for row in rows) <= 64
    for fill in ("best_fit", "knapsack", "single"):
        rows = packed_rows(run.changed(packing_fill=fill), pieces)
        assert sum(row.tokens for row in rows) == sum(min(64, piece.tokens) for piece in pieces)
        assert sum(row.samples for row in rows) == len(pieces)


def test_the_order_is_that_of_torchs_generator():
    assert permutation(10, 42) == (2, 6, 1, 8, 4, 5, 0, 9, 3, 7)
    assert permutation(1000, 11)[:6] == (441, 349, 148, 656, 429, 797)
    assert permutation(1000, 11)[-3:] == (143, 517, 934)
    assert (permutation(1, 3), permutation(0, 3)) == ((0,), ())


def test_samples_of_data_come_in_the_order_of_the_seed_and_listed_ones_as_they_are_listed():
    run = trl_run(TRL[0], packing=False, per_device_train_batch_size=1, max_length=128, seed=42)
    tokens = list(range(11, 21))
    listed, data = Lengths(tokens=tokens), Lengths(tokens=tokens, unshuffled=True)
    assert [shape.width for shape in train_shapes(run, listed)] == tokens
    assert [shape.width for shape in train_shapes(run, data)] == [13, 17, 12, 19, 15, 16, 11, 20, 14, 18]
    assert [shape.width for shape in eval_shapes(run.changed(eval_batch_size=1), data)] == tokens
    for other in ({"train_sampling_strategy": "sequential"}, {"dataset_streaming": True}):
        still = trl_run(TRL[0], packing=False, per_device_train_batch_size=1, max_length=128, seed=42, **other)
        assert [shape.width for shape in train_shapes(still, data)] == tokens


def test_padding_free_joins_the_rows_of_a_batch_in_training_and_in_evaluation():
    run = trl_run(TRL[0], packing=False, padding_free=True, max_length=None, per_device_train_batch_size=2, seed=42)
    tokens = [10, 20, 30, 40]
    [first, second] = train_shapes(run, Lengths(tokens=tokens))
    assert [first.width, second.width] == [30, 70]  # lengths in training order are not shuffled again
    drawn = train_shapes(run, Lengths(tokens=tokens, unshuffled=True))
    order = permutation(4, 42)
    assert [shape.width for shape in drawn] == [
        sum(tokens[at] for at in order[:2]),
        sum(tokens[at] for at in order[2:]),
    ]
    assert [shape.width for shape in drawn] != [30, 70]
    assert (first.rows, first.padded, first.labelled) == (1, False, first.width - 2)
    assert [shape.width for shape in eval_shapes(run, Lengths(tokens=tokens))] == [30, 70]
    preference = trl_run(TRL[0], packing=False, padding_free=True, beta=0.1, label_smoothing=0.0)
    assert (preference.objective.kind, preference.shapes.packing_rows) == ("dpo", "none")  # TRL falls back to padding


def test_flash_attention_is_told_how_many_samples_stand_in_a_row():
    run, lengths = trl_run(TRL[0]), Lengths(tokens=[60, 60, 8, 100, 20], labelled=[9, 9, 8, 9, 9])
    assert sum(shape.samples for shape in train_shapes(run, lengths)) == 5
    widths = Lengths(tokens=[256], samples=[7], packed=True)
    assert train_shapes(run, widths)[0].samples == 7
