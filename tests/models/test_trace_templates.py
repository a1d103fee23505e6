"""Traces that ship with vramwise: filled in for the dimensions of a config, without torch."""

import json
import time
from pathlib import Path

import pytest

import vramwise
from installed import needs
from vramwise.errors import VramwiseError
from vramwise.models import tracing
from vramwise.models.known import read_model
from vramwise.models.parameters import parameters
from vramwise.models.templates import NotCovered, document_of, filled, template_of, template_types
from vramwise.models.traces import model_from_trace

HELIUM = {
    "model_type": "helium",
    "hidden_size": 640,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 10,
    "num_key_value_heads": 5,
    "head_dim": 64,
    "vocab_size": 5000,
}


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.delenv(tracing.SWITCH, raising=False)
    monkeypatch.setattr(tracing, "installed", lambda: None)


def a_config_of(template, name):
    """A config of the type's default dimensions, with a layer of each kind and more of the last."""
    config = {key: value for key, value in template["fields"].items() if value is not None} | {"model_type": name}
    rule, count = template["kinds"], config[template["layers_field"]]
    words = sorted(rule["kinds"], key=rule["kinds"].get)
    rows = [word.split(" ") for word in [*words, *[words[-1]] * count][:count]]
    for column, (field, way) in enumerate(rule["by"]):
        found = [row[column] for row in rows]
        if way == "each":
            config[field] = found
        elif way == "in":
            config[field] = [layer for layer, word in enumerate(found) if word == "listed"]
        elif way == "first":
            config[field] = found.count("first")
        elif way == "until":
            config[field] = count - 1
    missing = [key for key, value in template["dimensions"].items() if value is None and key not in config]
    return {**config, **dict.fromkeys(missing, 8)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", template_types())
def test_every_template_gives_a_whole_trace_of_its_default_config(name):
    template = template_of(name)
    config = a_config_of(template, name)
    model = model_from_trace(filled(template, config), name=name, source=name)
    assert model.num_hidden_layers == config[template["layers_field"]]
    assert parameters(model)


def test_dimensions_are_filled_in():
    model = model_from_trace(document_of(HELIUM), name="x", source="x")
    shapes = {item.name: item.shape for item in parameters(model)}
    assert shapes["model.embed_tokens.weight"] == (5000, 640)
    assert shapes["model.layers.3.self_attn.k_proj.weight"] == (320, 640)
    assert shapes["model.layers.0.mlp.up_proj.weight"] == (1024, 640)
    assert len([name for name in shapes if name.endswith("o_proj.weight")]) == 4


@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_have_no_head_of_their_own(tied):
    model = model_from_trace(document_of({**HELIUM, "tie_word_embeddings": tied}), name="x", source="x")
    assert model.tie_word_embeddings is tied
    assert ("lm_head.weight" in {item.name for item in parameters(model)}) is not tied


@pytest.mark.parametrize(
    ("field", "value"), [("attention_bias", True), ("hidden_act", "relu"), ("hidden_size", "wide"), ("head_dim", 0)]
)
def test_a_config_that_differs_otherwise_is_not_covered(field, value):
    with pytest.raises(NotCovered, match=field):
        document_of({**HELIUM, field: value})


def test_layers_are_of_the_kinds_that_the_config_lists():
    config = a_config_of(template_of("cwm"), "cwm")
    words = ["sliding_attention", "full_attention"] * (config["num_hidden_layers"] // 2)
    kinds = document_of({**config, "layer_types": words})["kinds"]
    assert kinds == [kinds[0], kinds[1]] * (config["num_hidden_layers"] // 2)
    assert kinds[0] != kinds[1]
    for wrong in (words[1:], ["linear_attention", *words[1:]], "full", None):
        with pytest.raises(NotCovered, match="layer_types"):
            document_of({**config, "layer_types": wrong})


def test_words_that_were_not_traced_are_not_covered():
    config = a_config_of(template_of("mellum"), "mellum")
    assert set(document_of(config)["kinds"]) == {0}
    others = ["sliding_attention", "full_attention"] * (config["num_hidden_layers"] // 2)
    with pytest.raises(NotCovered, match="layer_types"):
        document_of({**config, "layer_types": others})


def test_numbers_that_a_config_lists_for_its_layers_are_compared():
    config = a_config_of(template_of("laguna"), "laguna")
    heads = [48] * config["num_hidden_layers"]
    assert document_of({**config, "num_attention_heads_per_layer": heads})
    with pytest.raises(NotCovered, match="num_attention_heads_per_layer"):
        document_of({**config, "num_attention_heads_per_layer": [64, *heads[1:]]})


def test_the_shipped_file_is_small_and_filled_quickly():
    path = Path(vramwise.__file__).parent / "models" / "trace_templates.json"
    assert path.stat().st_size < 1_200_000
    started = time.process_time()
    document_of(HELIUM)
    assert time.process_time() - started < 0.5


def test_an_unknown_type_has_none():
    assert document_of({"model_type": "llama_of_tomorrow"}) is None


def test_a_shipped_trace_is_predicted_without_torch(tmp_path, not_installed):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HELIUM))
    assert read_model(folder / "config.json").trace is not None
    config = tmp_path / "config.yml"
    config.write_text(
        f"base_model: {folder}\nmicro_batch_size: 2\nsequence_len: 1024\nbf16: true\nadapter: lora\nlora_r: 8\n"
        "lora_target_linear: true\ndatasets:\n- path: x\n  type: alpaca\noptimizer: adamw_torch_fused\n"
    )
    found = vramwise.predict(config, gpu="24GB").prediction
    assert any("traced from transformers" in one for one in map(str, found.assumptions))


KERNELS = {"lora_mlp_kernel": True, "lora_qkv_kernel": True, "lora_o_kernel": True}
LIGER = {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rms_norm": True}
LORA = {
    "base_model": "model",
    "micro_batch_size": 4,
    "sequence_len": 2048,
    "pad_to_sequence_len": True,
    "bf16": True,
    "adapter": "lora",
    "lora_r": 8,
    "lora_target_linear": True,
    "datasets": [{"path": "x", "type": "alpaca"}],
    "optimizer": "adamw_torch_fused",
    "gradient_checkpointing": False,
    **dict.fromkeys(KERNELS, False),  # Axolotl turns them on by itself
}


@pytest.mark.parametrize(
    ("keys", "named", "least", "most"),
    [
        ({}, None, 1, 1),
        (LIGER, "Liger's kernels", 0.7, 1.05),
        (KERNELS, "fused LoRA kernels", 0.7, 1.05),
        ({**LIGER, **KERNELS}, "Liger's kernels and fused LoRA kernels", 0.7, 1.05),
        ({"tiled_mlp": True}, "tiled MLP", 0.5, 1.3),
    ],
)
def test_kernels_that_a_trace_is_predicted_without_make_a_range(
    tmp_path, not_installed, vramwise, keys, named, least, most
):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({**HELIUM, "num_hidden_layers": 8}))
    config = tmp_path / "config.yml"
    config.write_text(json.dumps({**LORA, **keys}))
    told = json.loads(vramwise("predict", config, "--gpu", "h200", "--format", "json").stdout)
    predicted, weights = told["peak_reserved_bytes"], told["breakdown"]["weights"]
    short = f"{int(predicted * 0.8 + 2**30) // 2**20}MiB"  # the context takes less than 1 GiB
    verdict = json.loads(vramwise("predict", config, "--gpu", short, "--format", "json").stdout)["verdict"]
    if named is None:
        assert told["range"] is None
        assert verdict["memory"] == "does_not_fit"
        return
    assert told["range"]["names"] == [named]
    assert told["range"]["lower_bytes"] == int(predicted * least)
    assert told["range"]["upper_bytes"] == pytest.approx(predicted + (most - 1) * (predicted - weights), rel=1e-6)
    assert verdict["memory"] == "may_fit"


def test_what_is_not_covered_says_why_and_names_the_extra(tmp_path, not_installed):
    (tmp_path / "config.json").write_text(json.dumps({**HELIUM, "kv_lora_rank": 8, "attention_bias": True}))
    with pytest.raises(VramwiseError, match=r"attention_bias is True.*vramwise\[trace\]"):
        read_model(tmp_path / "config.json")


@needs("torch", "transformers")
@pytest.mark.nightly
def test_a_template_gives_what_tracing_gives():
    from vramwise.models.recorder.document import document

    modes = list(template_of("helium")["document"]["modes"])
    traced = json.loads(json.dumps(document({**HELIUM, "max_position_embeddings": 4096}, modes)))
    for ways in traced["modes"].values():
        ways.pop("wide")  # not shipped
    given = document_of({**HELIUM, "max_position_embeddings": 4096, "tie_word_embeddings": False})
    assert {**given, "source": "", "torch": ""} == {**traced, "source": "", "torch": ""}
