"""A traced model takes what the same model takes as its family describes it, which was compared with measured runs."""

from dataclasses import replace

import pytest
from traced_models import CONFIGS, trace_of

from accuracy import peaks_after_load, predict
from installed import needs
from truth import _case
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.models.parameters import linear_modules, parameters
from vramwise.models.traces import model_from_trace

pytestmark = [needs("torch", "transformers"), pytest.mark.usefixtures("nothing_warns")]

LORA = {"adapter": "lora", "lora_r": 16}
CHECKPOINTED = {"gradient_checkpointing": True}
NOT_REENTRANT = {**CHECKPOINTED, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
WAYS = {
    "full": {},
    "full, checkpointed": CHECKPOINTED,
    "full, norms and tables in fp32": {"fp32_embeddings": True},
    "full, fp32 weights": {"weights_dtype": "fp32"},
    "lora": LORA,
    "lora, checkpointed": {**LORA, **CHECKPOINTED},
    "lora, checkpointed without reentry": {**LORA, **NOT_REENTRANT},
    "4-bit lora": {**LORA, **CHECKPOINTED, "load_in_4bit": True},
    "4-bit dora": {**LORA, "load_in_4bit": True, "peft_use_dora": True},
    "4-bit dora, checkpointed": {**LORA, **CHECKPOINTED, "load_in_4bit": True, "peft_use_dora": True},
    "eager": {"attn_implementation": "eager"},
}


@pytest.fixture
def nothing_warns(recwarn):
    """No warning comes from a traced run."""
    yield
    assert not recwarn.list


def case_of(name, way):
    settings = {"name": name, "model": CONFIGS[name], "sequence_len": 512, "micro_batch_size": 4, "steps": 3}
    return _case({"name": name, "case": {**settings, **WAYS[way]}}, None)


def peaks(case):
    settings = parse_settings(case.run.allocator.settings, case.run.target.torch)
    return peaks_after_load(simulate(predict(case), settings, torch=case.run.target.torch))


# precisions besides the plain one
WIDE = {
    "full, norms and tables in fp32": "bf16, fp32 norms, fp32 tables, autocast",
    "full, fp32 weights": "fp32, autocast",
}


def traced(name, way="full"):
    return model_from_trace(trace_of(name, *([WIDE[way]] if way in WIDE else [])), name=name, source="trace")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "way"), [*[("llama", way) for way in WAYS], ("qwen3", "full"), ("qwen3", "lora")])
def test_dense_models_take_what_their_families_say(name, way):
    case = case_of(name, way)
    allocated, reserved = peaks(case)
    found = peaks(replace(case, model=traced(name, way)))
    assert found[0] == pytest.approx(allocated, rel=0.001)
    assert found[1] == pytest.approx(reserved, rel=0.01)


@pytest.mark.parametrize("way", ["full", "lora, checkpointed"])
def test_products_with_a_transposed_weight_are_linear_layers(way):
    """Falcon writes its linear layers so, and leaves unequal heads to torch's own products."""
    case = case_of("falcon", way)
    case = replace(case, run=case.run.changed(rotary_by_product=False))
    allocated, reserved = peaks(case)
    found = peaks(replace(case, model=traced("falcon")))
    assert found[0] == pytest.approx(allocated, rel=0.005)
    assert found[1] == pytest.approx(reserved, rel=0.02)


@pytest.mark.nightly
def test_gemma_4_takes_what_its_code_takes():
    """Values and the router's input are normed without a weight, and experts' results are weighted in fp32."""
    case = case_of("gemma4", "full")
    case = replace(case, run=case.run.changed(expert_masks="none", rotary_by_product=False))
    allocated, reserved = peaks(case)
    found = peaks(replace(case, model=traced("gemma4")))
    assert allocated == pytest.approx(found[0], rel=0.01)
    assert reserved == pytest.approx(found[1], rel=0.03)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["full", "full, checkpointed", "lora", "lora, checkpointed"])
def test_a_mixture_of_experts_takes_what_its_family_says(way):
    """PEFT puts adapters on the experts' weights too."""
    case = case_of("olmoe", way)
    case = replace(case, run=case.run.changed(expert_masks="none", rotary_by_product=False))
    allocated, reserved = peaks(case)
    found = peaks(replace(case, model=traced("olmoe")))
    assert found[0] == pytest.approx(allocated, rel=0.001)
    assert found[1] == pytest.approx(reserved, rel=0.01)


@pytest.mark.parametrize("name", ["llama", "qwen3", "olmoe"])
def test_parameters_and_modules_are_those_of_the_family(name):
    hand = case_of(name, "full").model
    assert [item[:2] for item in parameters(traced(name))] == [item[:2] for item in parameters(hand)]
    assert linear_modules(traced(name)) == linear_modules(hand)


@pytest.mark.parametrize(
    "way", ["full", "full, checkpointed", "lora, checkpointed", "lora, checkpointed without reentry"]
)
def test_layers_are_given_what_the_model_makes_for_them(way):
    """Gemma 4 cuts an input for every layer out of one tensor, to which all gradients are added."""
    case = case_of("gemma4 with inputs", way)
    assert peaks(replace(case, model=traced("gemma4 with inputs", way))) == pytest.approx(peaks(case), rel=0.02)


def test_attention_of_types_without_sdpa_is_traced_as_it_is_written():
    document = trace_of("granite_swa")
    steps = [step["k"] for step in document["modes"]["bf16, autocast"]["all"]["layers"][0]["steps"]]
    assert document["attention"] == "eager"
    assert "window" in steps
    assert "attention" not in steps
    case = replace(case_of("llama", "full"), model=model_from_trace(document, name="m", source="m"))
    flash = case.run.changed(attn_implementation="flash_attention_2")
    assert peaks(case)[0] > 0
    with pytest.raises(VramwiseError, match="not flash attention"):
        predict(replace(case, run=flash))


def test_functions_with_a_backward_of_their_own_are_followed():
    """Bloom's activation saves its input, which the last of its ops is not given."""
    program = trace_of("bloom")["modes"]["bf16, autocast"]["all"]["layers"][0]
    nodes = [step["n"] for step in program["steps"] if step.get("n")]
    assert not any("?" in node["e"] for node in nodes)


@pytest.mark.nightly
def test_masks_that_the_code_works_on_are_made_in_any_case():
    """DeepSeek V3.2 leaves keys out of its mask, layer by layer."""
    document = trace_of("deepseek_v32")
    assert document["attention"] == "masked"
    case = replace(case_of("llama", "full"), model=model_from_trace(document, name="m", source="m"))
    assert peaks(case)[0] > 0
