"""Names that carry a known shape."""

import pytest

from vramwise.errors import VramwiseError
from vramwise.models.known import by_name, find_model
from vramwise.models.names import Taken, Unclear, carried, words


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("teknium/OpenHermes-2.5-Mistral-7B", "mistralai/Mistral-7B-v0.1"),
        ("/models/llama-3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("cognitivecomputations/dolphin-2.9-llama3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO", "mistralai/Mixtral-8x7B-v0.1"),
        ("me/llama-3-tagalog-8b", "meta-llama/Meta-Llama-3-8B"),
        ("./out/Qwen3-8B-sft/checkpoint-500", "Qwen/Qwen3-8B"),
        ("me/gemma-2-9b-it-abliterated", "google/gemma-2-9b-it"),
        ("me/DeepSeek-R1-Distill-Qwen-7B-tuned", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"),
        ("me/qwen2.5-coder-7b-lora", "Qwen/Qwen2.5-Coder-7B"),
        ("C:\\models\\Llama-2-7b-mine", "meta-llama/Llama-2-7b-hf"),
        ("me/phi-4-bnb-nf4", "microsoft/phi-4"),
        ("deepseek-ai/DeepSeek-V3-0324-BF16", "deepseek-ai/DeepSeek-V3-0324"),
        ("alignment-handbook/zephyr-7b-sft-full", "HuggingFaceH4/zephyr-7b-beta"),
    ],
)
def test_a_name_is_taken_for_what_it_says(name, known):
    model = find_model(name)
    assert model.source == f"name ({known})"
    assert model.name == name
    assert known in model.taken_for


@pytest.mark.parametrize("name", ["me/my-model", "x/gpt2-thing", "me/mistral", "", "7b", "llama-3"])
def test_a_name_that_says_too_little_is_not(name):
    assert by_name(name) is None


def test_how_the_checkpoint_is_stored_is_in_the_name():
    assert find_model("x/Meta-Llama-3.1-8B-Instruct-AWQ").checkpoint_quantization == "awq"
    assert find_model("x/Mistral-7B-mine-GPTQ").checkpoint_quantization == "gptq"
    assert find_model("x/Qwen3-8B-mine-bnb-4bit").checkpoint_quantization == "bitsandbytes_4bit"
    assert find_model("x/phi-4-bnb-nf4").checkpoint_quantization == "bitsandbytes_4bit"
    assert find_model("x/phi-4-bf16").checkpoint_quantization is None


def test_different_shapes_are_refused_with_the_candidates():
    shapes = [("a/foo-7b", 1), ("b/foo-7b-chat", 2)]
    assert carried("me/foo-7b-x", shapes) == Unclear(("a/foo-7b", "b/foo-7b-chat"))
    assert carried("me/foo-7b-x", [("a/foo-7b", 1), ("b/foo-7b-chat", 1)]) == Taken("a/foo-7b", None)


def test_the_refusal_names_the_candidates(monkeypatch):
    found = Unclear(("a/foo-7b", "b/foo-7b"))
    monkeypatch.setattr("vramwise.models.known.carried", lambda name, shapes: found)
    with pytest.raises(VramwiseError, match=r"different shapes: a/foo-7b, b/foo-7b\. Name the one"):
        find_model("me/foo-7b-x")


def test_words():
    assert words("Meta-Llama-3.1-8B-Instruct-v0.2") == ("llama", "3.1", "8b")
    assert words("Mixtral-8x7B-Instruct-2409") == ("mixtral", "8x7b")
    assert words("stablelm-2-1_6b") == ("stablelm", "2", "1.6b")


def test_a_prediction_says_so(vramwise, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "base_model: /models/llama-3-8b\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
        "sequence_len: 512\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\nlearning_rate: 1e-4\n"
        "datasets:\n  - path: x\n    type: alpaca\n"
    )
    result = vramwise("predict", path)
    assert result.exit_code == 0
    assert "is unknown, its shape is that of meta-llama/Meta-Llama-3-8B" in result.output.replace("\n", " ")
