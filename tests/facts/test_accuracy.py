"""The expected error: of runs like this one, by their features; what no run had is outside it."""

import pytest

from opened import make_target
from vramwise.documents.document import parse_document
from vramwise.facts import accuracy
from vramwise.facts.accuracy import Recorded, expected_error
from vramwise.opening.subject import on_target
from vramwise.trainers.registry import trainer_named
from vramwise.types import RunSpec
from vramwise.variants.bounds import bounds
from vramwise.variants.features import features

CONFIG = """\
base_model: meta-llama/Llama-3.2-1B
sequence_len: 2048
micro_batch_size: 2
bf16: true
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
"""


def opened(more=""):
    document = parse_document("config.yml", (CONFIG + more).encode())
    return on_target(document, trainer_named("axolotl"), make_target(gpu="h200"))


def recorded(name, error, **had):
    return Recorded(name=name, features=frozenset(had.items()), allocated=error / 2, reserved=error)


@pytest.fixture
def runs(monkeypatch):
    runs = [
        *(recorded(f"adam {number}", 0.1 * number, trainer="t", optimizer="adam", loss="stock") for number in range(6)),
        recorded("muon", -7.0, trainer="t", optimizer="muon", loss="stock"),
        recorded("other trainer", 50.0, trainer="u", optimizer="adam", loss="stock"),
    ]
    monkeypatch.setattr(accuracy, "record", lambda: (tuple(runs), "made up"))
    accuracy._expected.cache_clear()
    yield runs
    accuracy._expected.cache_clear()


def test_runs_that_share_the_features_are_counted_and_named(runs):
    error = expected_error({"trainer": "t", "optimizer": "adam", "loss": "stock"})
    assert (error.applies, error.outside, error.runs) == (True, (), 6)
    assert error.names[0] == "adam 0"
    assert error.reserved_worst == 0.5
    assert error.closest_differs == ()


def test_each_feature_is_stood_for_by_a_run_that_had_it(runs):
    error = expected_error({"trainer": "t", "optimizer": "muon", "loss": "stock"})
    assert error.names[0] == "muon"
    assert error.reserved_worst == 7.0
    assert error.reserved_lowest == -7.0
    assert "other trainer" not in error.names


def test_a_feature_that_no_run_had_is_outside(runs):
    error = expected_error({"trainer": "t", "optimizer": "adam", "loss": "fused"})
    assert error.applies is False
    assert error.outside == ("fused",)
    assert error.runs == 6, "and what is known of the rest is still there"


def test_what_is_not_modelled_is_outside_though_it_was_measured(runs):
    error = expected_error({"trainer": "t", "optimizer": "adam", "loss": "stock"}, ["adam"])
    assert (error.applies, error.outside) == (False, ("adam",))


def test_the_record_of_the_package_is_whole():
    runs, basis = accuracy.record()
    assert "H200" in basis
    trainers = {dict(run.features)["trainer"] for run in runs}
    assert trainers == {"transformers", "axolotl", "trl", "llamafactory", "unsloth"}
    assert len({run.name for run in runs}) == len(runs) > 200
    kinds = set(features(opened().run, opened().model))
    for run in runs:
        assert {kind for kind, _ in run.features} >= kinds - {"release"}, f"{run.name}: run `make record`"


def test_every_switch_of_a_run_is_a_feature_or_has_no_say():
    """A field that is added is compared at once: nobody has to remember it here."""
    subject = opened()
    plain = features(subject.run, subject.model)
    for field in ("tiled_mlp", "layer_offloading", "torch_compile", "fp32_embeddings"):
        other = features(subject.run.changed(**{field: not subject.run.value(field)}), subject.model)
        assert other != plain, field
    assert features(subject.run.changed(unfrozen=("head",)), subject.model) != plain
    sizes = subject.run.changed(micro_batch_size=7, sequence_len=99, lora_r=3, effective_batch_size=7)
    assert features(sizes, subject.model) == plain


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"rl": "dpo"}, "rl: dpo"),
        ({"optimizer": "adamw_bnb_8bit"}, "adamw_8bit"),
        ({"recompute": True, "checkpointing_reentrant": True}, "reentrant checkpointing"),
        ({"gpus": 8, "sharding": "zero3"}, "ZeRO 3"),
        ({"use_dora": True}, "DoRA"),
        ({"quantization": "4bit", "adapter": "qlora"}, "LoRA on a 4-bit base"),
        ({"eval_batch_size": 16}, "evaluation at another batch"),
    ],
)
def test_features_read_as_people_call_them(change, phrase):
    subject = opened()
    assert phrase in features(subject.run.changed(**change), subject.model).values()


def test_a_compiled_run_lies_between_what_stands_and_the_uncompiled_one():
    """Measured for LoRA on a 1B shape: 9,938 MiB allocated where the uncompiled run took 13,505."""
    subject = opened("torch_compile: true\n")
    prediction = subject.prediction()
    between = prediction.bounds
    assert between is not None
    assert between.upper_bytes == prediction.needs.highest_reserved_bytes
    assert 2.3 * 2**30 < between.lower_bytes < 9938 * 2**20
    assert opened().prediction().bounds is None


def test_what_has_no_upper_bound_is_not_known():
    subject = opened()
    run: RunSpec = subject.run.changed(rl="grpo")
    between = bounds(run, subject.model, subject.prediction().needs)
    assert between is not None
    assert between.upper_bytes is None
    assert subject.with_run(run).prediction().fits is None


def test_a_type_that_a_trainer_was_never_measured_in_is_compared_with_all_of_its_method():
    runs, _ = accuracy.record()
    of_unsloth = [run for run in runs if {("trainer", "unsloth"), ("method", "LoRA on a 4-bit base")} <= run.features]
    features = dict(of_unsloth[0].features)
    usual, new = expected_error(features), expected_error({**features, "precision": "fp16"})
    assert usual.applies
    assert (new.applies, new.outside) == (False, ("fp16 in unsloth",))
    assert set(new.names) >= {run.name for run in of_unsloth}
    assert new.reserved_lowest <= usual.reserved_lowest
