"""TRL's files: whose they are, what they are for, what they come to, and how changes are written into them."""

from dataclasses import replace

import pytest
import yaml

from opened import make_target, subject_of_text
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.errors import ConfigError, VramwiseError
from vramwise.opening.sidecar import read_side_files
from vramwise.opening.subject import on_target
from vramwise.trainers.recognise import Foreign, recognise
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.trainers.trl.datasets import dataset_blocks
from vramwise.trainers.trl.keys import vocabulary
from vramwise.trainers.trl.kind import kind_of
from vramwise.types import Change, Severity
from vramwise.variants import changes
from vramwise.variants.bounds import unmodelled
from vramwise.verbs.check import Policy, check_subject

BASE = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: trl-lib/Capybara\nmax_steps: 10\n"


def run_of(text, **words):
    return subject_of_text(BASE + text, make_target(trainer="trl", **words), trainer="trl").run


def kind(text, path="x.yaml"):
    return kind_of(parse_document(path, text.encode())).name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("packing: true\n", "sft"),
        ("learning_rate: 1.0e-4\n", "sft"),
        ("desirable_weight: 1.0\n", "kto"),
        ("center_rewards_coefficient: 0.01\n", "reward"),
        ("lora_task_type: SEQ_CLS\n", "reward"),
        ("reward_funcs: [a]\n", "grpo"),
        ("# RLOO trainer config\nreward_funcs: [a]\n", "rloo"),
        ("precompute_ref_log_probs: true\n", "dpo"),
        ("beta: 0.1\n", "dpo"),
        ("# ORPOTrainer arguments\nbeta: 0.1\n", "orpo"),
        ("output_dir: data/zephyr-kto-full\nbeta: 0.1\n", "kto"),
        ("teacher_model_name_or_path: m\n", "distillation"),
        ("output_dir: softprompts-adapted\n", "sft"),
    ],
)
def test_the_kind_of_training(text, name):
    assert kind(BASE + text) == name


def test_the_path_speaks_where_nothing_else_does():
    assert kind(BASE, "recipes/zephyr/dpo/config.yaml") == "dpo"


@pytest.mark.parametrize(
    "text",
    [
        "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: x\nlearning_rate: 1e-4\nuse_peft: true\n",
        "model_name_or_path: m\ndataset_name: d\ntorch_dtype: bfloat16\n",
        "model_name_or_path: {a: 1}\ndataset_name: d\nlearning_rate: 1.0\n",
        "compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\n",
        "dataset_name: d\nmodel: m\n",
    ],
)
def test_other_files_are_not_trls(text):
    found = recognise(parse_document("x.yaml", text.encode()).values)
    assert isinstance(found, Foreign) or found.name != "trl"


def test_defaults_that_surprise():
    run = run_of("use_peft: true\neval_strategy: epoch\n", versions=("trl==1.16.0",))
    assert (run.batch.micro_batch_size, run.evaluation.eval_batch_size, run.shapes.sequence_len) == (8, 8, 1024)
    assert (run.precision.compute, run.precision.weights_dtype, run.precision.autocast) == ("bf16", "fp32", True)
    assert (run.adapter.lora_r, run.adapter.lora_alpha, run.adapter.lora_dropout) == (16, 32.0, 0.05)
    assert (run.savings.recompute, run.savings.checkpointing_reentrant) == (True, False)
    assert (run.kernels.loss_kernel, run.loading.quantised_base_prepared, run.loading.loads_through) == (
        "tiled",
        "no",
        "device",
    )
    assert run.allocator.settings == ""


def test_bf16_is_taken_whatever_the_card():
    run = run_of("", gpu="t4")
    assert run.precision.compute == "bf16"
    rules = {
        found.rule
        for found in check_subject(
            subject_of_text(BASE, make_target(trainer="trl", gpu="t4"), trainer="trl"), Policy()
        ).findings
    }
    assert "bf16-unsupported" in rules


def test_a_quantised_base():
    run = run_of("use_peft: true\nload_in_4bit: true\n")
    assert (run.adapter.kind, run.loading.quantization) == ("qlora", "4bit")
    assert (run.loading.nested_scales, run.adapter.half_adapters, run.precision.weights_dtype) == (False, True, "fp32")
    assert run_of("use_peft: true\nload_in_4bit: true\nuse_bnb_nested_quant: true\n").loading.nested_scales


def test_model_init_kwargs_win():
    run = run_of("model_init_kwargs:\n  dtype: bfloat16\n  attn_implementation: eager\n")
    assert (run.precision.weights_dtype, run.kernels.attn_implementation) == ("bf16", "eager")


@pytest.mark.parametrize(
    ("text", "rows", "constant", "apart"),
    [
        ("packing: true\n", "one", False, True),
        ("packing: true\npacking_strategy: wrapped\n", "micro", True, False),
        ("pad_to_multiple_of: 1024\n", "none", True, True),
        ("pad_to_multiple_of: 64\n", "none", False, True),
    ],
)
def test_shapes(text, rows, constant, apart):
    run = run_of(text, versions=("trl==1.16.0",))
    assert (run.shapes.packing_rows, run.shapes.constant_shapes, run.shapes.samples_apart) == (rows, constant, apart)


def test_references():
    dpo = BASE + "ld_alpha: 0.5\n"
    found = {
        text: subject_of_text(dpo + text, trainer="trl").run
        for text in ("", "use_peft: true\n", "precompute_ref_log_probs: true\n", "dtype: bfloat16\n")
    }
    assert [found[text].objective.reference for text in found] == ["model", "adapter_off", "none", "model"]
    assert [found[text].objective.reference_dtype for text in ("", "dtype: bfloat16\n")] == ["fp32", "bf16"]
    assert found["precompute_ref_log_probs: true\n"].objective.reference_precomputed
    assert found[""].objective.log_probs == "tiled"


def test_generation():
    run = run_of(
        "reward_funcs: [a]\nper_device_train_batch_size: 4\nsteps_per_generation: 2\nuse_vllm: true\nbeta: 0.1\n"
    )
    assert (
        run.objective.kind,
        run.objective.generation_rows,
        run.objective.completion_len,
        run.objective.rows_per_prompt,
    ) == ("grpo", 8, 512, 8)
    assert (run.objective.engine, run.objective.engine_share, run.objective.reference) == ("beside", 0.3, "model")
    assert run_of("reward_funcs: [a]\n", versions=("trl==1.9.0",)).objective.completion_len == 256


def test_the_env_map_is_the_allocators():
    run = run_of("env:\n  PYTORCH_ALLOC_CONF: expandable_segments:True\n", env={"PYTORCH_ALLOC_CONF": "backend:native"})
    assert run.allocator.settings == "expandable_segments:True"
    assert run.origins["allocator"].key == "env.PYTORCH_ALLOC_CONF"
    assert run.origins["allocator"].place.line == 5
    old = run_of("env:\n  PYTORCH_ALLOC_CONF: expandable_segments:True\n", torch="2.9")
    assert old.allocator.settings == ""  # that torch reads the other variable


def test_the_allocators_rule_is_mended_in_the_file():
    subject = subject_of_text(BASE, trainer="trl")
    (found,) = [one for one in check_subject(subject, Policy()).findings if one.rule == "allocator-not-expandable"]
    after = apply_edits(subject.document, found.fix.edits)
    assert after.values["env"] == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    again = subject.with_document(after)
    assert "allocator-not-expandable" not in {one.rule for one in check_subject(again, Policy()).findings}


@pytest.mark.parametrize(
    ("name", "sharding"), [("zero3", "zero3"), ("fsdp2", "fsdp2"), ("multi_gpu", "ddp"), ("zero2", "zero2")]
)
def test_accelerates_files_by_trls_names(name, sharding):
    run = run_of(f"accelerate_config: {name}\n", gpus=4)
    assert (run.sharding.kind, run.batch.data_parallel) == (sharding, 4)


def test_lora_under_zero_3_is_reentrant_whatever_is_written():
    text = "accelerate_config: zero3\nuse_peft: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
    assert run_of(text, gpus=2).savings.checkpointing_reentrant
    rules = [
        found.key
        for found in check_subject(
            subject_of_text(BASE + text, make_target(trainer="trl", gpus=2), trainer="trl"), Policy()
        ).findings
    ]
    assert "gradient_checkpointing_kwargs.use_reentrant" in rules


def test_an_accelerate_file_is_read(tmp_path):
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
        "  fsdp_activation_checkpointing: true\n"
    )
    text = BASE + "accelerate_config: acc.yaml\ngradient_checkpointing: false\n"
    document = parse_document(str(tmp_path / "x.yaml"), text.encode())
    run = on_target(document, trainer_named("trl"), make_target(trainer="trl", gpus=2)).run
    assert (run.sharding.kind, run.sharding.offload_params, run.savings.recompute) == ("fsdp2", True, True)
    missing = on_target(
        parse_document("x.yaml", text.encode()), trainer_named("trl"), make_target(trainer="trl", gpus=2)
    ).run
    assert missing.origins["sharding"].kind == "assumed"
    (tmp_path / "broken.yaml").write_text("a: [")
    assert read_side_files(("broken.yaml",), str(tmp_path / "x.yaml")) == {"broken.yaml": None}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("deep.yaml", "{" * 100_000, "nested more than 64 levels deep"),
        ("many.yaml", "a: [" + "1," * 30_000 + "1]", "more than 20,000 values"),
        ("large.yaml", "# comment\n" * 200_000, "larger than 1 MiB"),
        ("deep.json", '{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_a_side_file_past_a_bound_is_an_error_at_once(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_side_files((name,), str(tmp_path / "x.yaml"))


ROUND_TRIP = {
    "smaller micro-batch": {"micro_batch_size": 2, "gradient_accumulation_steps": 4, "eval_batch_size": 2},
    "checkpointing off": {"gradient_checkpointing": False},
    "reentrant": {"checkpointing_reentrant": True},
    "weights": {"weights_dtype": "bf16"},
    "rows": {"sequence_len": 512},
    "padding": {"pad_to_sequence_len": True},
    "optimizer": {"optimizer": "adamw_bnb_8bit"},
    "attention": {"attn_implementation": "flash_attention_2"},
    "offloading": {"activation_offloading": "stream"},
    "four bits": {"adapter": "qlora", "quantization": "4bit"},
    "allocator": {"allocator": "expandable_segments:True"},
    "fp16": {"precision": "fp16"},
    "fp32": {"precision": "fp32"},
    "rank": {"lora_r": 4},
    "compiled": {"torch_compile": True},
}


@pytest.mark.parametrize("name", ROUND_TRIP)
@pytest.mark.parametrize(
    "more", ["", "bf16: true\ngradient_checkpointing: true\nenv:\n  A: b\ndtype: float32\nmax_length: 1024\n"]
)
def test_what_is_spelt_is_what_is_resolved(name, more):
    subject = subject_of_text(BASE + "use_peft: true\neval_strategy: steps\n" + more, trainer="trl")
    wanted = Change(id=name, title=name, effect="same", why="", fields=ROUND_TRIP[name])
    spelt = subject.trainer.spell(subject.run, wanted)
    run = subject.with_document(apply_edits(subject.document, spelt.edits)).run
    assert {field: run.value(field) for field in wanted.fields} == wanted.fields


def test_an_unknown_key_by_how_the_run_is_started():
    text = "lora_rank: 4\nbenchmarks: [x]\nwandb_entity: y\ntorch_dtype: bfloat16\n"

    def found(**words):
        subject = subject_of_text(BASE + text, make_target(trainer="trl", **words), trainer="trl")
        return {one.key: one for one in check_subject(subject, Policy()).findings if one.rule == "unknown-argument"}

    command = found()
    assert set(command) == {"lora_rank", "torch_dtype"}  # benchmarks and wandb_entity are open-r1's own
    assert all(one.severity is Severity.ERROR for one in command.values())
    assert "accelerate launch" in command["lora_rank"].message
    assert "dtype" in command["torch_dtype"].message
    assert all(one.severity is Severity.WARNING for one in found(launcher="module").values())


def test_one_word_of_a_project_makes_no_recipe():
    subject = subject_of_text(BASE + "use_flash_attention_2: true\n", trainer="trl")
    (found,) = [one for one in check_subject(subject, Policy()).findings if one.rule == "unknown-argument"]
    assert "alignment-handbook's own script" in found.message
    assert found.severity is Severity.ERROR


def test_renaming_moves_the_value():
    subject = subject_of_text(BASE + "torch_dtype: bfloat16 # as the checkpoint\n", trainer="trl")
    (found,) = [one for one in check_subject(subject, Policy()).findings if one.rule == "unknown-argument"]
    after = apply_edits(subject.document, found.fix.edits)
    assert "dtype: bfloat16 # as the checkpoint" in after.text
    assert subject.with_document(after).run.precision.weights_dtype == "bf16"


def test_a_key_of_another_kind_says_whose_it_is():
    subject = subject_of_text(BASE + "packing: true\nprecompute_ref_batch_size: 4\n", trainer="trl")
    (found,) = [one for one in check_subject(subject, Policy()).findings if one.rule == "unknown-argument"]
    assert "`trl dpo`" in found.message


def test_datasets():
    found = list(
        dataset_blocks({"dataset_name": "a", "datasets": [{"path": "b.jsonl", "columns": ["x"]}, {"path": 3}]})
    )
    assert [(one.path, one.columns) for one in found] == [("b.jsonl", ("x",))]
    assert [one.path for one in dataset_blocks({"dataset_name": "a", "dataset_text_field": "t"})] == ["a"]
    assert [one.path for one in dataset_blocks({"dataset_mixture": {"datasets": [{"id": "c"}]}})] == ["c"]
    assert [one.path for one in dataset_blocks({"dataset_mixer": {"d": 1.0}})] == ["d"]


def test_bf16_weights_are_offered_where_they_are_computed_in_bf16():
    run = run_of("use_peft: true\n")
    assert changes.load_in_bf16(run).effect == "rounding"
    assert changes.load_in_bf16(run_of("")).effect == "changes"
    assert changes.load_in_bf16(run_of("dtype: bfloat16\n")) is None
    assert changes.load_in_bf16(run.changed(precision="fp16")) is None


def test_somebody_may_say_the_kind():
    subject = subject_of_text(BASE + "precompute_ref_batch_size: 4\n", trainer="trl:dpo")
    assert (subject.run.objective.kind, subject.run.trainer) == ("dpo", "trl")
    assert "unknown-argument" not in {found.rule for found in check_subject(subject, Policy()).findings}
    with pytest.raises(VramwiseError, match="choose one of sft, dpo"):
        trainer_named("trl:pretraining")
    with pytest.raises(VramwiseError, match="has no kinds"):
        trainer_named("axolotl:dpo")


ODD = (None, "", "x", -1, 1e300, [1], {}, {"a": 1}, True, 10**30)


@pytest.mark.parametrize("kind", ["sft", "dpo", "grpo"])
def test_odd_values_stop_nothing(kind):
    trainer, target = trainer_named(f"trl:{kind}"), make_target(trainer="trl", gpu="h100")
    words = vocabulary(kind, target.stack)
    seen = vocabulary("sft", target.stack).keys() if kind != "sft" else frozenset()
    decisive = [key for key in sorted(words.keys() - seen) if words.meaning(key)]
    assert decisive
    for key in (*decisive, "env", "accelerate_config", "datasets", "model_name_or_path"):
        for value in ODD:
            text = yaml.safe_dump({"dataset_name": "d", "max_steps": 1, "use_peft": True, key: value})
            subject = on_target(parse_document("x.yaml", text.encode()), trainer, target)
            found = {one.rule for one in check_subject(subject, Policy()).findings}
            assert "internal-error" not in found, (key, value)


def test_targets_that_nobody_names_are_pefts():
    from vramwise.models.lora_targets import wanted_targets

    subject = subject_of_text(BASE + "use_peft: true\n", trainer="trl")
    assert wanted_targets(subject.run, subject.model) == ("q_proj", "v_proj")
    with pytest.raises(VramwiseError, match="has no default LoRA targets"):
        wanted_targets(subject.run, replace(subject.model, model_type="nobodys"))


def test_how_long_it_trains():
    def schedule(text):
        return trainer_named("trl").schedule(parse_document("x.yaml", text.encode()))

    assert (schedule("a: 1").epochs, schedule("a: 1").max_steps) == (3.0, None)
    found = schedule("num_train_epochs: 1\nmax_steps: 50\ntest_split_size: 0.1\n")
    assert (found.epochs, found.max_steps, found.held_out) == (1.0, 50, 0.1)
    odd = schedule("num_train_epochs: x\nmax_steps: -1\ntest_split_size: [1]\n")
    assert (odd.epochs, odd.max_steps, odd.held_out) == (3.0, None, 0.0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gradient_checkpointing_kwargs: {selective: true}\n", "gradient_checkpointing_kwargs.selective"),
        ("gradient_checkpointing_kwargs: {every_n_layers: 2}\n", "gradient_checkpointing_kwargs.every_n_layers"),
        ("gradient_checkpointing_kwargs: {offload: true}\n", "gradient_checkpointing_kwargs.offload"),
        ("teacher_model_name_or_path: Qwen/Qwen3-8B\n", "rl: distillation"),
    ],
)
def test_what_no_prediction_follows_is_said(text, name):
    run = run_of(text)
    assert [one.name for one in unmodelled(run)] == [name]
    assert run_of("gradient_checkpointing_kwargs: {use_reentrant: true, every_n_layers: 1}\n").unfollowed == ()
    off = run_of("gradient_checkpointing: false\ngradient_checkpointing_kwargs: {selective: true}\n")
    assert off.unfollowed == ()  # nothing is checkpointed


@pytest.mark.parametrize(
    ("model", "names"), [("Qwen/Qwen3-30B-A3B", ["router_aux_loss_coef"]), ("Qwen/Qwen2.5-0.5B", [])]
)
def test_a_router_s_loss_is_unfollowed_where_there_are_experts(model, names):
    text = BASE.replace("Qwen/Qwen2.5-0.5B", model) + "router_aux_loss_coef: 0.01\n"
    run = subject_of_text(text, make_target(trainer="trl"), trainer="trl").run
    assert [one.name for one in unmodelled(run)] == names


SCRIPT = """from trl import DPOConfig, DPOTrainer
from transformers import AutoModelForCausalLM
from peft import LoraConfig, get_peft_model
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype="bfloat16")
{wrapped}
DPOTrainer(model, args=DPOConfig({args})).train()
"""


@pytest.mark.parametrize(
    ("version", "wrapped", "args", "found"),
    [
        ("1.16.0", "", "", ("model", "bf16")),
        ("1.15.0", "", "", ("model", "fp32")),
        ("1.15.0", "", "model_init_kwargs={'dtype': 'bfloat16'}", ("model", "bf16")),
        ("1.15.0", "model = get_peft_model(model, LoraConfig())", "", ("adapter_copy", "bf16")),
        ("1.15.0", "", "precompute_ref_log_probs=True", ("none", "bf16")),
    ],
)
def test_the_reference_of_a_model_that_a_script_loads(version, wrapped, args, found):
    document = read_script("train.py", SCRIPT.format(wrapped=wrapped, args=args).encode(), Reading())
    target = make_target(trainer="trl", versions=(f"trl=={version}",))
    run = trainer_named("trl:dpo").resolve(document, target, {})
    assert (run.objective.reference, run.objective.reference_dtype) == found
