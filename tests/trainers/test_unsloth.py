"""Unsloth: which trainings are its own, what its calls and files resolve to, by version, and how changes are spelt."""

import json

import pytest

from opened import make_target
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.trainers.recognise import recognise
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.trainers.unsloth.keys import dynamic_checkpoint
from vramwise.variants.changes import halve_micro_batch

SCRIPT = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Llama-3.2-1B",
    max_seq_length = 2048,
    {load}
)
model = FastLanguageModel.get_peft_model(
    model,
    r = 32,
    {peft}
)
SFTTrainer(model = model, args = SFTConfig(output_dir = "out", {args})).train()
"""
FILE = """model: unsloth/Llama-3.2-1B
training:
  max_seq_length: 1024
  batch_size: 4
lora:
  lora_r: 8
"""


def run_of(load="load_in_4bit = True,", peft="", args="", *, gpu=None, versions=()):
    document = read_script("train.py", SCRIPT.format(load=load, peft=peft, args=args).encode(), Reading())
    assert (document.script.trainer, document.script.kind) == ("unsloth", "sft")
    target = make_target(trainer="unsloth", versions=versions, **({"gpu": gpu} if gpu else {}))
    return trainer_named("unsloth:sft").resolve(document, target, {})


def test_a_script_has_the_defaults_of_unsloth():
    run = run_of()
    assert run.batch.micro_batch_size == 4
    assert run.batch.gradient_accumulation_steps == 2
    assert (run.optimizer.name, run.adapter.kind, run.adapter.lora_r) == ("adamw_8bit", "qlora", 32)
    assert run.adapter.lora_target_modules[0] == "q_proj"
    assert (run.savings.recompute, run.savings.activation_offloading) == (True, "staged")
    assert (run.shapes.packing_rows, run.shapes.packing_fill) == ("one", "single")
    assert run.allocator.settings == "expandable_segments:True"


@pytest.mark.parametrize(
    ("way", "recompute", "offloading"),
    [('"unsloth"', True, "staged"), ("True", True, "off"), ("False", False, "off")],
)
def test_checkpointing(way, recompute, offloading):
    run = run_of(peft=f"use_gradient_checkpointing = {way},")
    assert (run.savings.recompute, run.savings.activation_offloading) == (recompute, offloading)


def test_checkpointing_that_the_config_turns_on():
    assert run_of(peft="use_gradient_checkpointing = False,", args="gradient_checkpointing = True").savings.recompute


@pytest.mark.parametrize(
    ("load", "quantization", "fast"),
    [
        ("", "4bit", True),
        ("load_in_4bit = False,", None, True),
        ("load_in_16bit = True,", None, True),
        ("load_in_4bit = False, load_in_8bit = True,", "8bit", False),
        ("load_in_4bit = True, full_finetuning = True,", None, False),
    ],
)
def test_widths(load, quantization, fast):
    run = run_of(load)
    assert run.loading.quantization == quantization
    assert ("llama" in run.kernels.fused_layers) is fast


def test_types_follow_the_card():
    assert (run_of(gpu="t4").precision.weights_dtype, run_of(gpu="t4").precision.compute) == ("fp16", "fp16")
    assert run_of(gpu="h100").precision.weights_dtype == "bf16"


@pytest.mark.parametrize(("length", "taken"), [(512, 512), (4096, 2048), (1024, 2048)])
def test_lengths(length, taken):
    assert run_of(args=f"max_length = {length}").shapes.sequence_len == taken


def test_embeddings_are_trained_whole():
    run = run_of(peft='target_modules = ["q_proj", "lm_head"],')
    assert run.adapter.lora_target_modules == ("q_proj",)
    assert run.adapter.lora_modules_to_save == ("lm_head",)


@pytest.mark.parametrize(
    ("version", "loss", "offloading", "rows"),
    [
        ("2024.8", "in_place", "hidden_states", "none"),
        ("2025.5.9", "cut", "staged", "none"),
        ("2025.9.1", "room", "staged", "none"),
        ("2025.12.8", "room", "staged", "one"),
        ("2026.10.8", "room", "staged", "one"),
        ("2026.10.9", "rows", "staged", "one"),
    ],
)
def test_releases_differ(version, loss, offloading, rows):
    run = run_of(peft='use_gradient_checkpointing = "unsloth",', versions=(f"unsloth=={version}",))
    assert (run.kernels.loss_kernel, run.savings.activation_offloading) == (loss, offloading)
    assert run.shapes.packing_rows == rows


@pytest.mark.parametrize(("zoo", "loss"), [("2026.10.8", "room"), ("2026.10.9", "rows")])
def test_the_loss_is_that_of_unsloth_zoo(zoo, loss):
    run = run_of(versions=("unsloth==2026.10.9", f"unsloth_zoo=={zoo}"))
    assert run.kernels.loss_kernel == loss


@pytest.mark.parametrize(
    ("gpu", "versions", "way"),
    [
        ("h100", ("torch==2.13.0",), "varlen"),
        ("h100", ("torch==2.11.0",), "repeated"),
        ("h100", ("torch==2.11.0", "xformers==0"), "segments"),
        ("t4", ("torch==2.13.0",), "repeated"),
    ],
)
def test_attention_goes_by_card_and_packages(gpu, versions, way):
    assert run_of(gpu=gpu, versions=versions).kernels.packed_attention == way


def test_what_is_not_followed_is_said():
    load = "fast_inference = True, offload_embedding = True,"
    assert {one.name for one in run_of(load).unfollowed} == {"fast_inference"}  # then embeddings stay
    older = run_of(load, versions=("unsloth==2026.4.4",))
    assert {one.name for one in older.unfollowed} == {"fast_inference", "offload_embedding"}


UNTIED = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
}
EMBEDDING_BYTES = 128256 * 4096 * 2


def untied(folder, *, load="", peft="", versions=(), **shape):
    """A script with an 16-bit base whose input embedding is a gigabyte."""
    (folder / "MODEL").mkdir(exist_ok=True)
    (folder / "MODEL" / "config.json").write_text(json.dumps(UNTIED | shape))
    source = SCRIPT.replace('"unsloth/Llama-3.2-1B"', repr(str(folder / "MODEL")))
    (folder / "train.py").write_text(source.format(load=f"load_in_4bit = False, {load}", peft=peft, args=""))
    return open_subject(folder / "train.py", Options(gpu="h200", versions=versions))


def held(subject, limit=None):
    """The allocated memory that is left after loading, and what is said about embeddings."""
    prediction = subject.prediction(limit_bytes=limit)
    said = [one for one in prediction.assumptions if "moves the input embedding" in one]
    return prediction.needs.breakdown_bytes["weights"], said


def test_an_embedding_leaves_a_card_that_has_too_little_left_beside_the_weights(tmp_path):
    subject = untied(tmp_path)
    whole, said = held(subject)
    assert not said
    # what unsloth_zoo sets aside for a row of 2,048 tokens and for 32 ranks' worth of trained weights
    trained = sum(32 * (a + b) for a, b in [(4096, 4096)] * 2 + [(4096, 1024)] * 2 + [(4096, 14336)] * 3) * 2
    step = 2048 * 4096 * 48 + 2048 * 128256 * 4 + trained * 16
    needed = step + step // 16 + (256 << 20)
    weights = whole + trained * 4
    assert held(subject, limit=weights + needed + (64 << 20))[0] == whole
    less, said = held(subject, limit=weights + needed - (64 << 20))
    assert whole - less == pytest.approx(EMBEDDING_BYTES, rel=0.01)
    assert said == [
        "Unsloth moves the input embedding to host memory, which saves 1.0 GiB: the card has little room "
        "beside the weights"
    ]


@pytest.mark.parametrize(
    "stays",
    [
        {"load": "offload_embedding = False,"},
        {"peft": "modules_to_save = ['embed_tokens'],"},
        {"versions": ("unsloth==2026.4.4",)},
        {"tie_word_embeddings": True},
    ],
    ids=str,
)
def test_an_embedding_stays_on_a_tight_card(stays, tmp_path):
    subject = untied(tmp_path, **stays)
    whole, _ = held(subject)
    assert held(subject, limit=whole) == (whole, [])


def test_an_embedding_leaves_any_card_if_the_script_says_so(tmp_path):
    whole, _ = held(untied(tmp_path))
    less, said = held(untied(tmp_path, load="offload_embedding = True,"))
    assert whole - less == pytest.approx(EMBEDDING_BYTES, rel=0.01)
    assert said


def script_run(source, kind, *versions):
    document = read_script("train.py", source.encode(), Reading())
    assert (document.script.trainer, document.script.kind) == ("unsloth", kind)
    return trainer_named(f"unsloth:{kind}").resolve(document, make_target(trainer="unsloth", versions=versions), {})


@pytest.mark.parametrize(("collator", "rows"), [("DataCollatorForSeq2Seq(tokenizer)", "none"), ("None", "one")])
def test_a_collator_of_the_script_keeps_rows_apart(collator, rows):
    given = SCRIPT.format(load="", peft="", args="").replace(
        "model = model, args", f"data_collator = {collator}, model = model, args"
    )
    run = script_run(given, "sft", "torch==2.11.0")
    assert run.shapes.packing_rows == rows
    assert run.adapter.fused_lora_traced is (rows == "none")
    assert not run.unfollowed
    assert "compiled layers" not in {one.name for one in script_run(given, "sft", "torch==2.10.0").unfollowed}


def test_preferences_are_compared_with_a_copy_of_the_adapter_in_fp32():
    run = script_run(SCRIPT.replace("SFT", "DPO").format(load="", peft="", args=""), "dpo")
    assert (run.objective.reference, run.loading.trains_in_fp32) == ("adapter_copy", True)


def test_the_command_s_file():
    document = parse_document("config.yml", FILE.encode())
    assert recognise(document.values).name == "unsloth"
    run = trainer_named("unsloth").resolve(document, make_target(trainer="unsloth"), {})
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps) == (4, 4)
    assert (run.adapter.lora_r, run.shapes.sequence_len) == (8, 1024)
    assert run.origins["micro_batch_size"].place.line == 4


def test_a_change_is_written_into_the_file_s_section():
    document = parse_document("config.yml", FILE.encode())
    trainer = trainer_named("unsloth")
    run = trainer.resolve(document, make_target(trainer="unsloth"), {})
    spelling = trainer.spell(run, halve_micro_batch(run))
    changed = apply_edits(document, spelling.edits)
    assert changed.values["training"]["batch_size"] == 2
    assert changed.values["training"]["gradient_accumulation_steps"] == 8


def test_fit_edits_a_notebook(tmp_path):
    code = SCRIPT.format(
        load="load_in_4bit = True,",
        peft='use_gradient_checkpointing = "unsloth",',
        args="per_device_train_batch_size = 8",
    )
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": code}]
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    subject = open_subject(path, Options(gpu="t4"))
    assert subject.trainer.name == "unsloth"
    spelling = subject.trainer.spell(subject.run, halve_micro_batch(subject.run))
    changed = apply_edits(subject.document, spelling.edits)
    assert "per_device_train_batch_size = 4" in changed.text
    assert subject.prediction().needs.peak_reserved_bytes > 0


@pytest.mark.parametrize(
    ("release", "torch", "settings"),
    [
        ("2024.8", "2.4.0", "expandable_segments:True"),
        ("2024.11.9", "2.5.1", "expandable_segments:True,roundup_power2_divisions:[64:128,256:64,>:32]"),
        ("2025.9.1", "2.8.0", "expandable_segments:True,roundup_power2_divisions:[32:256,64:128,256:64,>:32]"),
        ("2026.10.9", "2.11.0", "expandable_segments:True"),
    ],
)
def test_the_allocator_is_set_as_the_release_does(release, torch, settings):
    run = run_of(versions=(f"unsloth=={release}", f"torch=={torch}"))
    assert run.allocator.settings == settings
    assert run.kernels.tables_each_layer == release.startswith("2024")


@pytest.mark.parametrize(
    ("versions", "load", "warms_up", "halves"),
    [
        (("unsloth==2025.9.1", "transformers==4.55.4"), "load_in_4bit = True,", True, True),
        (("unsloth==2025.9.1", "transformers==4.55.4"), "load_in_16bit = True,", True, False),
        (("unsloth==2024.8",), "load_in_4bit = True,", False, False),
        (("unsloth==2026.10.9",), "load_in_4bit = True,", False, False),
    ],
)
def test_transformers_4_asks_for_half_the_size_ahead_of_a_quantised_base(versions, load, warms_up, halves):
    loading = run_of(load=load, versions=versions).loading
    assert (loading.warms_up, loading.halves_warm_up) == (warms_up, halves)


def test_a_tied_pair_shares_its_copy_since_2026_10():
    peft = 'target_modules = ["q_proj", "embed_tokens", "lm_head"],'
    assert run_of(peft=peft).adapter.saved_pair_tied
    assert not run_of(peft=f"{peft} ensure_weight_tying = False,").adapter.saved_pair_tied
    assert not run_of(peft=peft, versions=("unsloth==2026.4.4",)).adapter.saved_pair_tied


@pytest.mark.parametrize(
    ("version", "args", "on"),
    [("2024.8", "", False), ("2024.8", "bf16 = True", True), ("2024.8", "fp16 = True", True), ("2025.3.19", "", True)],
)
def test_old_releases_do_not_turn_mixed_precision_on(version, args, on):
    run = run_of(args=args, versions=(f"unsloth=={version}",))
    assert run.precision.autocast == on
    assert ("no autocast" in {one.name for one in run.unfollowed}) != on


@pytest.mark.parametrize("model", ["gemma-3-270m-it", "gpt-oss-20b", "Qwen3.5-4B"])
@pytest.mark.parametrize(("gpu", "found"), [("t4", ["float32 instead of float16"]), ("l4", [])])
def test_models_that_need_it_are_said_to_be_run_in_float32(model, gpu, found):
    script = SCRIPT.replace("Llama-3.2-1B", model).format(load="load_in_16bit = True,", peft="", args="")
    document = read_script("train.py", script.encode(), Reading())
    run = trainer_named("unsloth:sft").resolve(document, make_target(trainer="unsloth", gpu=gpu), {})
    assert [one.name for one in run.unfollowed] == found


def test_the_default_targets_of_the_commands_file_are_a_list_of_names():
    run = open_subject(Text(FILE), Options()).run
    assert run.adapter.lora_target_modules[:2] == ("q_proj", "k_proj")
    assert len(run.adapter.lora_target_modules) == 7


def test_a_model_that_is_no_name_is_no_traceback():
    assert dynamic_checkpoint(7) is None
    assert dynamic_checkpoint(["unsloth/Llama-3.2-1B"]) is None
    subject = open_subject(Text("model_name_or_path: .inf\nmax_seq_length: 256\n"), Options(trainer="unsloth"))
    assert (subject.run.base_model, subject.model) == (None, None)


@pytest.mark.parametrize(("gpu", "kind"), [("t4", "may_fit"), ("rtx-3090", "fits"), ("8GB", "does_not_fit")])
def test_a_checkpoint_with_layers_in_16_bits_is_a_range(gpu, kind, tmp_path):
    script = SCRIPT.replace("Llama-3.2-1B", "Qwen3-14B").format(load="load_in_4bit = True,", peft="", args="")
    (tmp_path / "train.py").write_text(script)
    prediction = open_subject(tmp_path / "train.py", Options(gpu=gpu)).prediction()
    assert prediction.verdict().kind == kind
    reserved, weights = prediction.needs.highest_reserved_bytes, prediction.needs.breakdown_bytes["weights"]
    assert prediction.bounds.lower_bytes == reserved
    assert prediction.bounds.upper_bytes == int(reserved + 0.25 * weights)


def test_what_has_no_known_end_leaves_the_verdict_open(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(load="fast_inference = True,", peft="", args=""))
    prediction = open_subject(tmp_path / "train.py", Options(gpu="h100")).prediction()
    assert prediction.verdict().kind == "not_known"
    assert prediction.bounds.upper_bytes is None


@pytest.mark.parametrize(
    ("version", "gpu", "copies"), [("2025.9.1", "t4", 1), ("2025.9.1", "l4", 0), ("2026.10.9", "t4", 0)]
)
def test_bfloat16_weights_are_copied_to_float16_before_2026_10(version, gpu, copies, tmp_path):
    script = SCRIPT.replace("Llama-3.2-1B", "gemma-3-270m-it").format(load="load_in_16bit = True,", peft="", args="")
    (tmp_path / "train.py").write_text(script)
    subject = open_subject(tmp_path / "train.py", Options(gpu=gpu, versions=(f"unsloth=={version}",)))
    assert subject.run.loading.copies_to_half == bool(copies)
    load = subject.prediction().needs.phases[0]
    embedding = 262_144 * 640 * 2
    held = subject.prediction().needs.breakdown_bytes["weights"]
    assert (load.peak_allocated_bytes > held + 0.9 * embedding) == bool(copies)


@pytest.mark.parametrize(("version", "starts"), [("2026.4.4", False), ("2026.10.9", True)])
def test_an_unknown_argument_stops_the_call_before_2026_10(version, starts, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(load="", peft="", args="max_prompt_length = 256,"))
    subject = open_subject(tmp_path / "train.py", Options(gpu="h100", versions=(f"unsloth=={version}",)))
    assert (not subject.stops) == starts
