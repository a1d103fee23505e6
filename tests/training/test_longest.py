"""A run that does not fit at sequence_len is judged by how long its samples really are."""

import pytest

from installed import needs
from tiny_runs import make_folder, write_config
from vramwise.opening.subject import Options
from vramwise.training.parent import run as verb
from vramwise.training.parent.prepare import TrainOptions

pytestmark = needs("transformers")


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


def too_long_for_the_card(folder, **changes):
    lora = {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True}
    return write_config(folder, base_model="meta-llama/Llama-3.2-1B", sequence_len=8192, micro_batch_size=8, **lora,
                        tokenizer_config="model", **changes)  # fmt: skip


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["told", "read"])
def test_a_misfit_at_sequence_len_is_judged_by_the_longest_sample(folder, monkeypatch, real):
    """Unpadded rows are as long as the data: a run is not refused for widths that never come."""
    if not real:  # reading imports transformers in another process
        monkeypatch.setattr(verb, "longest_samples", lambda plan: (13, None))
    options = TrainOptions(target=Options(gpu="rtx-3090", torch="2.13"), random_weights=True)
    started, said = [], []
    monkeypatch.setattr("vramwise.training.parent.supervise.supervise", lambda plan, **_: started.append(plan) or 0)
    config = too_long_for_the_card(folder)
    assert verb.train(str(config), options, say=said.append) == 0
    assert said[0] == "does not fit with rows of sequence_len 8192; reading how long the samples are"
    (memory,) = [one for one in started[0].decisions if one.name == "memory"]
    assert memory.why.endswith("; the longest sample has 13 tokens")
    assert started[0].predicted.peak_reserved_bytes < 24 * 2**30
    assert started[0].sequence_len == 8192


@pytest.mark.nightly
def test_a_misfit_at_the_longest_sample_stops_with_what_fits(folder, monkeypatch):
    said = []
    monkeypatch.setattr(verb, "longest_samples", lambda plan: (5003, None))
    options = TrainOptions(target=Options(gpu="rtx-3090", torch="2.13"), random_weights=True)
    assert verb.train(str(too_long_for_the_card(folder)), options, say=said.append) == 1
    assert any("reserved with rows of 5003 tokens, there is room for" in line for line in said)
    assert any(line.split()[2:3] == ["fits"] for line in said)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("changes", [{"pad_to_sequence_len": True}, {"datasets": [{"path": "gone.jsonl", "type": "completion"}]}])  # fmt: skip
@pytest.mark.usefixtures("short_searches")
def test_a_misfit_that_the_data_cannot_change_stops(folder, vramwise, changes):
    done = vramwise("train", too_long_for_the_card(folder, **changes), "--gpu", "rtx-3090", "--torch", "2.13")
    assert done.exit_code == 1
    assert "reserved with rows of 8192 tokens, there is room for" in done.output
    assert ("reading how long" in done.output) == ("datasets" in changes)
    assert ("the lengths are not known: dataset gone.jsonl does not exist" in done.output) == ("datasets" in changes)
    assert not (folder / "out").exists()
