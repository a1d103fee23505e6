"""Findings, fixes and rule pages use the words of the trainer whose file it is."""

import json
import re

import pytest

from vramwise.lookup.keys import known_keys
from vramwise.rules.discovery import common_rules
from vramwise.trainers.registry import trainer_named
from vramwise.types.run import SETTINGS

_TRL = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_length: 4096\n"
_DPO = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/pairs\nbeta: 0.1\nlearning_rate: 5.0e-7\n"
_LF = (
    "model_name_or_path: Qwen/Qwen3-0.6B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
    "template: qwen3\ncutoff_len: 4096\n"
)
_FULL = _LF.replace("lora", "full")
_HF = (
    "model_name_or_path: Qwen/Qwen3-0.6B\noutput_dir: out\nnum_train_epochs: 1\nlogging_steps: 10\n"
    "save_strategy: epoch\nper_device_train_batch_size: 2\n"
)
_FSDP = "fsdp: full_shard auto_wrap\nfsdp_config:\n  fsdp_version: 2\n  state_dict_type: FULL_STATE_DICT\n"
_EVAL = "eval_strategy: steps\neval_steps: 100\nper_device_eval_batch_size: 16\n"
_SAVED = "[embed_tokens, lm_head]"
# Trainer, file, options: together they make every common rule fire that can fire on such a file.
FILES = [
    ("trl", f"{_TRL}use_peft: true\nbf16: true\nbf16: true\n", "--gpu t4"),
    ("trl", f"{_TRL}attn_implementation: flash_attention_2\n", "--gpu t4"),
    ("trl", f"{_TRL}fp16: true\ndtype: float16\npacking: true\n", "--gpu rtx-4090"),
    ("trl", f"{_TRL}attn_implementation: eager\n{_EVAL}use_peft: true\nlora_modules_to_save: {_SAVED}\n", "--gpu t4"),
    ("trl", f"{_TRL}packing: true\nattn_implementation: sdpa\noutput_dir: Qwen/Qwen3-0.6B\n", "--gpu a100-80gb"),
    ("trl", f"{_TRL}bf16: false\nfp16: false\n", "--gpu t4"),
    ("trl", f"{_TRL}use_peft: true\nload_in_8bit: true\n", "--gpu h100"),
    ("trl", f"{_TRL}gradient_accumulation_steps: 4\n{_FSDP}", "--gpu h100 --gpus 2"),
    ("trl", f"{_TRL}use_peft: true\n{_EVAL}", "--gpu 12GB --predict"),
    ("trl", f"{_TRL}attn_implementation: flex_attention\n", "--gpu h100 --torch 2.5"),
    ("trl", _TRL, "--gpu v100-32gb --torch 2.15"),
    ("trl", _TRL, "--gpu t4 --with trl==9.0.0"),
    ("trl:dpo", _DPO, "--gpu rtx-4090"),
    ("trl:grpo", f"{_DPO}num_generations: 4\n", "--gpu rtx-4090"),
    ("trl:grpo", f"{_DPO}use_vllm: true\nvllm_gpu_memory_utilization: 0.02\n", "--gpu rtx-4090 --predict"),
    ("llamafactory", f"{_LF}bf16: true\nflash_attn: fa2\n", "--gpu t4"),
    ("llamafactory", f"{_LF}fp16: true\nadditional_target: embed_tokens,lm_head\n", "--gpu rtx-4090"),
    ("llamafactory", f"{_LF}flash_attn: disabled\nval_size: 0.1\n{_EVAL}", "--gpu h100"),
    ("llamafactory", f"{_FULL.replace('sft', 'dpo')}pref_beta: 0.1\n", "--gpu rtx-4090"),
    ("llamafactory", f"{_FULL}fp8: true\ndisable_gradient_checkpointing: true\npacking: true\n", "--gpu a100-80gb"),
    ("llamafactory", f"{_FULL}fp8: true\ntorch_compile: true\n", "--gpu h100 --with torchao==0.17.0 --torch 2.14"),
    ("llamafactory", f"{_FULL}pure_bf16: true\n", "--gpu t4"),
    ("llamafactory", f"{_LF}bf16: true\nval_size: 0.1\n{_EVAL}", "--gpu rtx-4090 --predict"),
    ("hf-trainer", f"{_HF}bf16: true\n{_EVAL}attn_implementation: eager\nmax_seq_length: 4096\n", "--gpu t4"),
    ("hf-trainer", f"{_HF}fp16: true\ntorch_dtype: float16\n", "--gpu rtx-4090"),
    ("hf-trainer", f"{_HF}gradient_accumulation_steps: 4\n{_FSDP}", "--gpu h100 --gpus 2"),
    ("hf-trainer", f"{_HF}optim: adamw_torch\nblock_size: 64\n", "--gpu rtx-4090 --predict"),
]
# Rules that speak of what these trainers do not have, or of keys alone.
_NOT_HERE = {"chunked-loss-holds-logits", "optimizer-torch-too-old", "placeholder-left", "tight-fit"}
_COMMON = {"sync_each_batch", "export"}  # accelerate's and the shell's
_ELSEWHERE = (known_keys(trainer_named("axolotl")) | set(SETTINGS)) - _COMMON


_PLAIN = {"rl", "adapter", "optimizer", "bfloat16", "datasets", "plugins"}


def foreign(text, own):
    """Keys of Axolotl's or settings of ours in a text. Plain words count as `word: value` or in backticks."""
    words = {word for word in re.findall(r"\w+", text) if "_" in word or re.search(rf"`{word}[`:]", text)}
    written = {word for word in _PLAIN if re.search(rf"\b{word}: ", text)}
    return sorted((words & _ELSEWHERE | written) - own)


def own_words(name):
    from vramwise.opening.options import Options
    from vramwise.opening.targets import target_for

    trainer = trainer_named(name)
    return trainer.vocabulary(None, target_for(".", Options(), trainer.name).stack).keys()


@pytest.fixture
def findings(vramwise, tmp_path):
    def run(name, text, options):
        path = tmp_path / "config.yml"
        path.write_text(text)
        options = options.split() if "--predict" in options else [*options.split(), "--no-predict"]
        shown = vramwise("check", path, "--trainer", name, "--format", "json", "--pedantic", *options)
        return json.loads(shown.output)["files"][0]["findings"]

    return run


@pytest.mark.parametrize(("name", "text", "options"), FILES)
def test_no_finding_or_fix_names_a_key_that_the_trainer_does_not_have(findings, name, text, options):
    own = own_words(name) | set(re.findall(r"\w+", text))
    found = findings(name, text, options)
    assert found
    for one in found:
        assert not foreign(one["message"], own), one["message"]
        assert one["key"] != "rl"
        assert not one["fix"] or not foreign(one["fix"]["title"], own), one["fix"]["title"]


def test_the_files_make_every_common_rule_speak(findings):
    fired = {one["rule"] for file in FILES for one in findings(*file)}
    silent = {rule.id for rule in common_rules()} - fired - _NOT_HERE
    assert not silent


@pytest.mark.parametrize("name", ["trl", "llamafactory", "hf-trainer"])
def test_no_common_page_names_a_key_that_a_trainer_does_not_have(name):
    own = own_words(name)
    named = {rule.id: foreign(f"{rule.title}\n{rule.documentation}", own) for rule in common_rules()}
    assert {rule: keys for rule, keys in named.items() if keys} == {}


def test_a_finding_says_the_method_as_the_trainer_does(findings):
    said = {}
    for name, text in (("trl:dpo", _DPO), ("llamafactory", f"{_FULL.replace('sft', 'dpo')}pref_beta: 0.1\n")):
        found = findings(name, text, "--gpu rtx-4090")
        said[name] = next(one["message"] for one in found if one["rule"] == "reference-model-in-memory")
    assert said["trl:dpo"].startswith("DPO without an adapter")
    assert said["llamafactory"].startswith("stage: dpo without an adapter")


@pytest.mark.parametrize(
    ("name", "text", "title", "written"),
    [
        ("trl", f"{_TRL}use_peft: true\nbf16: true\n", "Use fp16 on this card: fp16 true, bf16 false", {"fp16": True}),
        ("trl", f"{_TRL}bf16: true\n", "Train in fp32 on this card: bf16 false (fp16 needs an adapter)", {}),
        ("llamafactory", f"{_LF}bf16: true\n", "Use fp16 on this card: fp16 true, bf16 false", {"fp16": True}),
    ],
)
def test_the_title_of_a_fix_says_what_it_writes(findings, name, text, title, written):
    found = next(one for one in findings(name, text, "--gpu t4") if one["rule"] == "bf16-unsupported")
    assert found["fix"]["title"] == title
    edits = {edit["key"]: edit["value"] for edit in found["fix"]["edits"]}
    assert edits == {"bf16": False, **written}


def test_axolotl_lets_the_card_decide(findings):
    text = "base_model: Qwen/Qwen3-0.6B\nadapter: lora\nlora_r: 8\nbf16: true\nmicro_batch_size: 1\n"
    found = next(one for one in findings("axolotl", text, "--gpu t4") if one["rule"] == "bf16-unsupported")
    assert found["fix"]["title"].startswith("Let the card decide")
    assert {edit["key"]: edit["value"] for edit in found["fix"]["edits"]}["bf16"] == "auto"


def test_bf16_is_turned_off_by_the_key_that_turned_it_on(vramwise, tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(f"{_FULL}pure_bf16: true\n")
    vramwise("fix", path, "--trainer", "llamafactory", "--gpu", "t4", "--no-predict", "--unsafe-fixes")
    assert "pure_bf16" not in path.read_text()
