"""Versions newer or older than every known release: what is said of them, and how far they widen a verdict."""

from pathlib import Path

import pytest

from vramwise.opening.options import Options
from vramwise.opening.subject import open_subject

SFT = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: a/b\nper_device_train_batch_size: 4\nmax_length: 1024\n"


@pytest.fixture
def predicted(tmp_path: Path):
    def run(*versions, more=""):
        path = tmp_path / "sft.yml"
        path.write_text(SFT + more)
        options = Options(trainer="trl", gpu="h100", versions=versions)
        return open_subject(str(path), options).with_data("").prediction()

    return run


def test_a_known_version_is_no_doubt(predicted):
    assert predicted("trl==1.16.0").known_doubts == ()


def test_an_older_release_may_compute_the_loss_on_all_logits_in_fp32(predicted):
    prediction = predicted("trl==0.3.1")
    (doubt,) = [one for one in prediction.known_doubts if one.kind == "version"]
    assert (doubt.kind, doubt.text) == ("version", "trl 0.3.1 is unknown (treated as 0.4.2)")
    logits = 4 * 1024 * prediction.model.vocab_size
    most = prediction.needs.highest_reserved_bytes * (1 + doubt.more)
    held = prediction.needs.breakdown_bytes.get("logits", 0)
    assert most == pytest.approx(prediction.needs.highest_reserved_bytes + 16 * logits - held)
    assert doubt in prediction.doubts


def test_logits_of_an_older_release_count_where_the_loss_is(predicted):
    """The peak of eager attention is in backward, when the logits are gone."""
    more = (
        "attn_implementation: eager\ngradient_checkpointing: true\npacking: true\nmax_length: 16384\nuse_peft: true\n"
    )
    prediction = predicted("trl==0.3.1", more=more)
    (doubt,) = prediction.known_doubts
    at_loss = max(peak.peak_allocated_bytes for peak in prediction.needs.phases if peak.phase == "loss")
    below = prediction.needs.highest_allocated_bytes - at_loss
    assert below > 0
    logits = 4 * 16384 * prediction.model.vocab_size
    expected = (16 * logits - below) / prediction.needs.highest_reserved_bytes
    assert doubt.more == pytest.approx(max(0, expected), rel=0.02)


def test_unsloth_computes_its_loss_in_place_in_all_old_releases(tmp_path: Path):
    path = tmp_path / "sft.yml"
    path.write_text("model: unsloth/Llama-3.2-1B\ntraining:\n  max_seq_length: 1024\n  bf16: true\n")
    options = Options(trainer="unsloth", gpu="h100", versions=("unsloth==2024.3",))
    doubts = open_subject(str(path), options).with_data("").prediction().known_doubts
    assert [(one.more, one.less) for one in doubts if one.kind == "version"] == [(0, 0)]


OLD_SCRIPT = """\
from trl import SFTConfig, SFTTrainer, {name}
SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(max_length=1024, packing=True, use_liger_kernel={liger}))
"""


@pytest.mark.parametrize(
    ("name", "liger", "versions", "doubted"),
    [
        ("setup_chat_format", False, (), True),
        ("setup_chat_format", True, (), False),
        ("setup_chat_format", False, ("trl==1.16.0",), False),
        ("clone_chat_template", False, (), False),
    ],
)
def test_a_script_that_the_assumed_trl_cannot_import_may_hold_all_logits(tmp_path, name, liger, versions, doubted):
    path = tmp_path / "train.py"
    path.write_text(OLD_SCRIPT.format(name=name, liger=liger))
    prediction = open_subject(str(path), Options(gpu="h100", versions=versions)).with_data("").prediction()
    found = [one for one in prediction.known_doubts if one.kind == "version"]
    assert len(found) == doubted
    if doubted:
        assert found[0].text.startswith("the script imports setup_chat_format, which trl 1.16.0 no longer has")
        run = prediction.run
        logits = run.batch.micro_batch_size * run.shapes.sequence_len * prediction.model.vocab_size
        assert found[0].more * prediction.needs.highest_reserved_bytes == pytest.approx(16 * logits, rel=0.02)


def test_a_newer_release_may_need_a_copy_of_the_logits_more_or_less(predicted):
    prediction = predicted("trl==1.9.0", "transformers==6.0.0")
    (doubt,) = prediction.known_doubts
    assert doubt.text == "transformers 6.0.0 is unknown (newer than all known ones)"
    copy = 4 * 4 * 1024 * prediction.model.vocab_size / prediction.needs.highest_reserved_bytes
    assert doubt.more == pytest.approx(copy)
    assert 0 <= doubt.less <= copy


def test_without_logits_there_is_nothing_to_copy(predicted):
    (doubt,) = predicted("trl==9.0.0").known_doubts
    assert (doubt.more, doubt.less) == (0, 0)


@pytest.mark.parametrize(
    ("version", "bf16", "checkpointing"),
    [("0.18.0", "fp32", False), ("0.19.0", "bf16", False), ("0.22.0", "bf16", True)],
)
def test_old_releases_of_trl_have_other_defaults(predicted, version, bf16, checkpointing):
    run = predicted(f"trl=={version}").run
    assert run.precision.compute == bf16
    assert run.savings.gradient_checkpointing is checkpointing


@pytest.mark.parametrize(("version", "rows"), [("0.18.0", "micro"), ("0.19.0", "one"), ("0.20.0", "one")])
def test_old_releases_of_trl_stack_packed_rows(predicted, version, rows):
    assert predicted(f"trl=={version}", more="packing: true\n").run.shapes.packing_rows == rows


@pytest.mark.parametrize(("version", "attention"), [("4.35.2", "eager"), ("4.36.0", "sdpa")])
def test_models_of_an_old_transformers_have_eager_attention_alone(predicted, version, attention):
    run = predicted("trl==0.7.4", f"transformers=={version}").run
    assert run.kernels.attn_implementation == attention


def test_an_open_verdict_states_its_range(predicted):
    from vramwise.facts.gpus import find_gpu
    from vramwise.render.prediction_json import prediction_json
    from vramwise.variants.capacity import on_card

    prediction = predicted("trl==0.3.1", "transformers==4.46.0")
    need = prediction.needs.highest_reserved_bytes
    size = (need + prediction.needs.outside_bytes) / 2**30 * (1 + prediction.margin.more / 2)
    tight = on_card(prediction, find_gpu(f"{size:.1f}GB"))
    found = prediction_json(tight)
    assert found["verdict"]["memory"] == "may_fit"
    assert found["range"]["lower_bytes"] <= need < found["range"]["upper_bytes"]
    assert "trl 0.3.1 is unknown" in found["range"]["why"]
    assert prediction_json(prediction)["range"] is None
