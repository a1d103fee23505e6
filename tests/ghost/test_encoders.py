"""Encoders, and decoders that attend to one: what their forward passes keep, as transformers' own do.

The sizes were counted on a processor with transformers 5.23: tensors saved for the backward pass, in MiB, of four rows
of 256 tokens through three layers of full width, without dropout. Where a processor's kernels differ from a card's
(autocast's list of types, attention with a learned bias), a type is not listed.
"""

import json
from pathlib import Path

import pytest

import vramwise
from truth import _case
from vramwise.errors import VramwiseError
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.kinds import begin
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.tape import Tape
from vramwise.models.catalogue import more_shapes
from vramwise.models.config import model_from_config
from vramwise.models.known import by_name, find_model, from_catalogue
from vramwise.models.parameters import parameter_count
from vramwise.timeline import Action

WIDE = {"hidden_size": 768, "num_hidden_layers": 3, "num_attention_heads": 12, "intermediate_size": 3072}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TWO = {
    "d_model": 768,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "dropout": 0.0,
}
CONFIGS = {
    "bert": {"model_type": "bert", **WIDE, **STILL},
    "roberta": {"model_type": "roberta", **WIDE, **STILL, "max_position_embeddings": 514, "type_vocab_size": 1},
    "albert": {"model_type": "albert", **WIDE, **STILL, "embedding_size": 128},
    "electra": {"model_type": "electra", **WIDE, **STILL, "hidden_size": 256, "intermediate_size": 1024}
    | {"num_attention_heads": 4},
    "distilbert": {"model_type": "distilbert", "dim": 768, "n_layers": 3, "n_heads": 12, "hidden_dim": 3072}
    | {"dropout": 0.0, "attention_dropout": 0.0},
    "modernbert": {"model_type": "modernbert", **WIDE, "num_hidden_layers": 4, "intermediate_size": 1152},
    "bart": {"model_type": "bart", **TWO},
    "deberta": {"model_type": "deberta-v2", **WIDE, **STILL, "relative_attention": True, "position_buckets": 256}
    | {"share_att_key": True, "max_relative_positions": -1},
    "whisper": {"model_type": "whisper", **TWO, "num_mel_bins": 80, "max_source_positions": 1500},
}
# objective, autocast, padded: MiB
SAVED_MIB = {
    "bert": {("classes", False, False): 150.2, ("classes", True, False): 134.8, ("classes", True, True): 136.3}
    | {("token_classes", False, False): 150.2, ("token_classes", True, True): 136.7},
    "roberta": {("classes", False, False): 150.2, ("classes", True, True): 136.4},
    "albert": {("classes", False, False): 256.2},
    "electra": {("classes", False, False): 50.1},
    "distilbert": {("classes", False, False): 150.2, ("classes", True, True): 136.3},
    "modernbert": {("classes", False, False): 200.5, ("classes", True, False): 151.9, ("classes", True, True): 152.9},
    "bart": {("tokens", False, False): 550.9, ("tokens", True, False): 593.1, ("tokens", True, True): 596.1},
    "deberta": {("classes", False, False): 380.3},
    "whisper": {("tokens", True, False): 1226.9},
}
RECORD = {
    "name": "case_full",
    "model": {"model_type": "llama", **WIDE, "vocab_size": 100},
    "sequence_len": 256,
    "micro_batch_size": 4,
    "steps": 1,
    "alloc_conf": "expandable_segments:True",
}


def case(**changes):
    found = _case({"name": "case_full", "case": RECORD}, Path())
    run = found.run.changed(**{"weights_dtype": "fp32", "fp32_embeddings": True, "autocast": True, **changes})
    return found.hardware, run


def kept_mib(name, objective, amp, padded):
    hardware, run = case(objective=objective, autocast=amp, precision="bf16" if amp else "fp32")
    t = Tape(hardware)
    loop = begin(t, run, model_from_config(CONFIGS[name], name=name, source="config.json"), plainly=True)
    batch = loop.batch(BatchShape(4, 256, padded))
    start = len(t.events)
    loss, logits = loop.forward(batch, padded)
    del logits
    alive = {}
    for action, number, nbytes, _, tag in t.events[start:]:
        if action == int(Action.ALLOC) and t.tags[tag].category != "workspace":
            alive[number] = nbytes
        elif action == int(Action.FREE):
            alive.pop(number, None)
    del loss
    return sum(alive.values()) / 2**20


@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for name, rows in SAVED_MIB.items() for how in rows], ids=lambda one: str(one)
)
def test_it_keeps_what_transformers_keeps(name, how):
    assert kept_mib(name, *how) == pytest.approx(SAVED_MIB[name][how], rel=0.02)


@pytest.mark.parametrize("shape", more_shapes(), ids=lambda shape: shape["ids"][0])
def test_our_own_count_is_that_of_the_shape(shape):
    assert parameter_count(from_catalogue(shape["ids"][0])) == shape["count"]


def test_a_name_that_is_only_mentioned_is_not_an_id():
    assert from_catalogue("albert") is None
    assert from_catalogue("a public list") is None


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("acme/llama-7b-chat", "huggyllama/llama-7b"),
        ("someone/flan-t5-large-samsum", "google/flan-t5-large"),
        ("me/bert-base-uncased-imdb", "google-bert/bert-base-uncased"),
        ("x/whisper-small-hi", "openai/whisper-small"),
    ],
)
def test_a_name_with_family_and_size_has_that_shape(name, known):
    assert known in by_name(name).taken_for


def test_a_base_model_of_a_size_is_found_by_its_size():
    """`base` says how a model was trained where another word is its size."""
    assert parameter_count(by_name("acme/Qwen2.5-7B-base-x")) == parameter_count(find_model("Qwen/Qwen2.5-7B"))


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("savings", [False, True], ids=["kept", "recomputed"])
def test_it_trains(name, savings):
    objective = "tokens" if name in ("bart", "whisper") else "classes"
    hardware, run = case(objective=objective, precision="bf16", recompute=savings, checkpointing_reentrant=False)
    model = model_from_config(CONFIGS[name], name=name, source="config.json")
    timeline, _ = ghost_run(run, model, steps=3, hardware=hardware)
    plain, _ = ghost_run(run, model, steps=3, hardware=hardware, plainly=True)
    assert peak(timeline) == peak(plain)


def peak(timeline):
    from vramwise.allocator.repeats import unroll

    sizes, live, most = {}, 0, 0
    for action, number, nbytes, *_ in unroll(timeline, 10**6).events:
        if action == int(Action.ALLOC):
            sizes[number] = nbytes
            live += nbytes
            most = max(most, live)
        elif action == int(Action.FREE):
            live -= sizes.pop(number)
    return most


def test_checkpointing_keeps_less():
    found = {}
    for savings in (False, True):
        hardware, run = case(objective="tokens", precision="bf16", recompute=savings, checkpointing_reentrant=False)
        model = model_from_config({**CONFIGS["bart"], "vocab_size": 1000}, name="bart", source="config.json")
        found[savings] = peak(ghost_run(run, model, steps=2, hardware=hardware)[0])
    assert found[True] < 0.9 * found[False]


def test_a_layer_that_does_not_exist_is_an_error():
    with pytest.raises(VramwiseError, match="decoder_layers"):
        model_from_config({**CONFIGS["bart"], "decoder_layers": "six"}, name="bart", source="config.json")


RESULTS = Path(__file__).parents[2] / "bench" / "results" / "heads_measured.jsonl"
MEASURED = {row["name"]: row for row in map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())}


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_it_takes_what_it_took_on_a_card(name, tmp_path, monkeypatch, vramwise):
    """Predicted before it ran; see bench/results/heads.md."""
    monkeypatch.syspath_prepend(str(RESULTS.parents[1] / "card"))
    import head_cases

    monkeypatch.setattr(head_cases, "WORK", tmp_path)
    shape, _, _, width, _, _ = head_cases.CASES[name]
    (tmp_path / shape).mkdir()
    (tmp_path / shape / "config.json").write_text(json.dumps(head_cases.SHAPES[shape]))
    path = tmp_path / "case.py"
    path.write_text(head_cases.script(name))
    versions = [word for one in head_cases.VERSIONS.items() for word in ("--with", "==".join(one))]
    words = ["--gpu", "h200", "--torch", head_cases.TORCH, "--set", f"max_length={width}", "--offline", *versions]
    found = json.loads(vramwise("predict", path, *words, "--format", "json").stdout)
    assert found["peak_allocated_bytes"] / 2**20 == pytest.approx(MEASURED[name]["allocated_mib"], rel=0.02)
    assert found["peak_reserved_bytes"] / 2**20 == pytest.approx(MEASURED[name]["reserved_mib"], rel=0.075)


@pytest.mark.parametrize("method", ["orpo", "dpo", "kto"])
def test_preference_training_of_an_encoder_and_a_decoder_is_refused(method):
    config = {"base_model": "facebook/bart-base", "rl": method, "sequence_len": 512, "micro_batch_size": 2}
    config |= {"datasets": [{"path": "a/b", "type": "chat_template.argilla"}], "optimizer": "adamw_torch", "bf16": True}
    with pytest.raises(VramwiseError, match=f"rl: {method} is not supported for bart"):
        vramwise.predict(config, gpu="a100-80gb")
