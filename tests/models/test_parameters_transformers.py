"""The same comparison against the installed transformers and PEFT, where they are installed."""

import pytest

import golden_parameters
from installed import TRAINING, Later, needs, older_than
from vramwise.models.config import model_from_config
from vramwise.models.known import catalogue_shapes
from vramwise.models.lora_targets import ALL_LINEAR, lora_targets
from vramwise.models.parameters import parameters

pytestmark = [
    needs("torch", "transformers"),
    pytest.mark.skipif(older_than("transformers", 5), reason="transformers is older than 5: " + TRAINING),
]
torch = Later("torch")
transformers = Later("transformers")

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL = [case if "text_config" in case else {**case, **TOKENS} for case in golden_parameters.small_cases()]
TARGETS = {
    "all-linear": ALL_LINEAR,
    "few": ["q_proj", "down_proj", "query_key_value", "c_attn"],
    "many": [
        "q_proj",
        "v_proj",
        "qkv_proj",
        "dense",
        "gate_proj",
        "up_proj",
        "down_proj",
        "w1",
        "w2",
        "w3",
        "embed_tokens",
        "lm_head",
    ],
    "regex": r".*\.(q_proj|qkv_proj|query_key_value|c_attn)",
    "expert-regex": r".*layers\.[02]\.(mlp|self_attn)\.(experts\.)?(gate|up|down|w1|w2|w3)_proj",
}


# PEFT 0.21 refuses "all-linear" with state-space layers; a router that is a linear layer gets an adapter there, which is
# not counted here (experts × hidden, a thousandth of the others).
ROUTED = ("falcon_h1", "nemotron_h", "llama4_text", "gemma4_text", "dbrx")
# Wrapped linears that PEFT refuses; another class of model than the test builds.
NOT_COMPARED = ("gemma4", "voxtral")


def model_type(config):
    return config["model_type"]


def reading(config):
    return model_from_config(config, name="", source="").reads


def adapter_cases():
    """Every small model with every way to name targets, without those that PEFT refuses or that are not compared.

    Encoders, and decoders that attend to one, are compared by their linear layers alone.
    """
    return [
        pytest.param(config, targets, id=f"{model_type(config)}-{name}")
        for config in SMALL
        for name, targets in TARGETS.items()
        if model_type(config) not in NOT_COMPARED and not (model_type(config) in ROUTED and targets == ALL_LINEAR)
        if targets == ALL_LINEAR or reading(config) == "decoder"
    ]


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(autouse=True, scope="module")
def _shapes_alone():
    """Nothing here looks at a weight, and filling those that are not there takes a quarter of the time."""
    with pytest.MonkeyPatch.context() as patched:
        for name in (name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")):
            patched.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
        yield


def ours(config):
    model = model_from_config(config, name="case", source="config.json")
    return [(parameter.name, parameter.shape) for parameter in parameters(model)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("config", SMALL, ids=model_type)
def test_small_models(config):
    assert ours(config) == golden_parameters.named_shapes(config)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("shape", catalogue_shapes(), ids=lambda shape: shape["ids"][0])
def test_real_models(shape):
    if not golden_parameters.can_be_built(shape["config"]):
        pytest.skip("transformers alone has no code of this model")
    assert ours(shape["config"]) == golden_parameters.named_shapes(shape["config"])


# The difference from Voxtral's own default text model does not name that model's type.
@pytest.mark.parametrize("config", [one for one in SMALL if one["model_type"] != "voxtral"], ids=model_type)
def test_a_saved_config_means_the_same(config):
    """What `save_pretrained` writes (defaults left out) reads as what was meant."""
    fields = {key: value for key, value in config.items() if key != "model_type"}
    saved = transformers.CONFIG_MAPPING[config["model_type"]](**fields).to_diff_dict()
    if "text_config" in config:
        tied = config["model_type"] in ("gemma3", "gemma4", "lfm2_vl")
        saved["tie_word_embeddings"] = config.get("tie_word_embeddings", tied)
    assert ours(saved) == ours(config)


# A text model inside another model is checked on its own.
@pytest.mark.parametrize("config", [one for one in SMALL if "text_config" not in one], ids=model_type)
def test_windows_equal_transformers(config):
    fields = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.CONFIG_MAPPING[config["model_type"]](**fields)
    model = model_from_config(config, name="", source="")
    itself = config["model_type"] == "modernbert"  # which counts the neighbours on one side, without the token itself
    window = getattr(made, "sliding_window", None)
    assert model.sliding_window == (window + itself if window else None)
    # what GLM 5 calls a layer that shares its indexer's choice is no kind of attention of its own
    if getattr(made, "layer_types", None) and "indexer_types" not in config:
        assert model.layer_types == tuple(made.layer_types)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("config", "targets"), adapter_cases())
def test_adapters_go_where_peft_puts_them(config, targets):
    peft = pytest.importorskip("peft", minversion="0.21", reason=f"peft 0.21 is not installed: {TRAINING}")
    expected = peft_targets(peft, config, targets)
    model = model_from_config(config, name="", source="")
    found = []
    for target in lora_targets(model, targets):
        rank = 8 * target.experts * target.rank_factor
        module = target.name.rpartition(".")[0] if target.kind == "parameter" else target.name
        found.append((module, *sorted([(rank, target.in_features), (target.out_features, rank)])))
    assert sorted(one for one in found if "pooler" not in one[0]) == expected


def auto_class(config):
    """The class that trains a model of this type; of an encoder, the layers alone: its heads are another matter."""
    if "text_config" in config:
        return transformers.AutoModelForImageTextToText
    if config["model_type"] == "whisper":
        return transformers.AutoModelForSpeechSeq2Seq
    by_reading = {"encoder": "AutoModel", "both": "AutoModelForSeq2SeqLM"}
    return getattr(transformers, by_reading.get(reading(config), "AutoModelForCausalLM"))


def peft_targets(peft, config, targets):
    """Module and shapes of every adapter PEFT makes; nested wrappers of parameters go by the module's name."""
    fields = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.CONFIG_MAPPING[config["model_type"]](**fields)
    with torch.device("meta"):
        model = auto_class(config).from_config(made)
    try:
        wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, r=8, task_type=None))
    except ValueError as error:
        if "not found in the base model" in str(error) or "No modules were targeted" in str(error):
            return []
        raise
    shapes = {}
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name and "pooler" not in name:
            module = name.removeprefix("base_model.model.").split(".lora_")[0]
            shapes.setdefault(module, []).append(tuple(parameter.shape))
    return sorted((module.replace(".base_layer", ""), *sorted(pair)) for module, pair in shapes.items())
