"""Warnings are for what hurts on this card and data; what nothing comes of is for those who ask."""

import inspect
import json
import re
from dataclasses import replace

import pytest

from opened import check_document, make_target, subject_of_text
from vramwise import check, explain
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.rules.base import Rule
from vramwise.trainers.rulebook import all_rules
from vramwise.types import Severity
from vramwise.verbs.finding_figures import reserved_as_written

SMALL = (
    "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 4\nbf16: true\nadapter: lora\n"
    "lora_r: 16\nlora_alpha: 32\nlora_target_linear: true\ngradient_checkpointing: true\n"
    "attn_implementation: flash_attention_2\n"
)
PADDED = SMALL + "pad_to_sequence_len: true\n"
COSTLY = SMALL.replace("gradient_checkpointing: true\n", "")
QUIET = "learning_rate: 5e-5\nflash_attention: true\ndebug: true\nload_best_model: false\n"


def found(text, gpu, **options):
    [report] = check(text, gpu=gpu, torch="2.13", **options)
    return {finding.rule: finding for finding in report.findings}


def test_logits_are_worth_a_word_where_room_is_scarce_alone():
    assert "logits-dominate" not in found(PADDED, "h100")
    short = found(PADDED, "8GB")["logits-dominate"]
    assert "predicted to reserve" in short.message
    tight = found(PADDED, "16GB")["logits-dominate"]
    assert tight.severity is Severity.WARNING


TIGHT = COSTLY.replace("micro_batch_size: 4", "micro_batch_size: 3") + "lora_mlp_kernel: false\nsample_packing: false\n"


def shown(vramwise, tmp_path, text, *options):
    """Severities by rule, as the command reports them."""
    path = tmp_path / "config.yml"
    path.write_text(text)
    report = json.loads(vramwise("check", path, "--torch", "2.13", "--format", "json", *options).output)
    return {one["rule"]: (one["severity"], one["message"]) for one in report["files"][0]["findings"]}


def test_a_tight_fit_of_full_rows_is_a_note_where_rows_may_be_shorter(vramwise, tmp_path):
    severity, message = shown(vramwise, tmp_path, TIGHT, "--gpu", "26GB")["tight-fit"]
    assert severity == "info"
    assert message.startswith("with full rows of 2048 tokens")
    assert message.endswith("use --data FILE to read the row lengths")


def test_a_tight_fit_warns_where_every_row_is_full(vramwise, tmp_path):
    found = shown(vramwise, tmp_path, TIGHT + "pad_to_sequence_len: true\n", "--gpu", "26GB")
    assert found["tight-fit"][0] == found["logits-dominate"][0] == "warning"


def test_mixed_rows_are_a_warning_where_segments_do_not_grow(vramwise, tmp_path):
    """Rows of various lengths may then reserve more than full ones."""
    found = shown(vramwise, tmp_path, TIGHT, "--gpu", "26GB", "--alloc-conf", "")
    assert found["does-not-fit"][0] == "warning"


def test_a_tight_fit_with_images_warns(vramwise, tmp_path):
    """Their size has no bound in the file."""
    found = shown(vramwise, tmp_path, TIGHT + "processor_type: AutoProcessor\n", "--gpu", "26GB")
    assert found["tight-fit"][0] == "warning"


def test_logits_of_a_run_that_fits_with_some_room_are_a_note(vramwise, tmp_path):
    found = shown(vramwise, tmp_path, TIGHT + "pad_to_sequence_len: true\n", "--gpu", "27GB")
    assert "tight-fit" not in found
    assert found["logits-dominate"][0] == "info"


@pytest.mark.parametrize(("gpu", "severity"), [("h100", "info"), ("rtx-4060", "warning")])
def test_waiting_batches_are_measured_by_what_hosts_of_such_cards_have(vramwise, tmp_path, gpu, severity):
    text = "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 65536\nmicro_batch_size: 4\nsample_packing: true\n"
    found = shown(vramwise, tmp_path, text, "--gpu", gpu, "--gpus", "8", "--no-predict")
    assert found["prefetch-host-memory"][0] == severity


def test_logits_that_another_peak_hides_are_not_blamed():
    """The optimizer's step decides: a loss that holds no logits would bring nothing."""
    text = (
        "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 64\npad_to_sequence_len: true\nmicro_batch_size: 4\nbf16: true\n"
        "optimizer: adamw_torch\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    )
    assert "logits-dominate" not in found(text, "4GB")


@pytest.mark.parametrize(("gpu", "severity"), [("h200", Severity.INFO), ("26GB", Severity.WARNING)])
def test_widths_that_vary_warn_where_their_cost_is_missed(gpu, severity):
    finding = found(COSTLY, gpu, alloc_conf="")["unpadded-sequences"]
    assert finding.severity is severity
    assert "predicted to reserve" in finding.message
    assert finding.fix is not None
    assert finding.fix.safe is (severity is Severity.WARNING)


def test_what_the_widths_cost_is_the_difference_of_two_predictions():
    target = make_target(gpu="h200", torch="2.13", alloc_conf="")
    varying, constant = (subject_of_text(text, target) for text in (COSTLY, f"{COSTLY}pad_to_sequence_len: true\n"))
    assert reserved_as_written(varying) > 1.03 * reserved_as_written(constant)


def test_widths_that_cost_nothing_here_are_no_warning():
    """Rows of 128 tokens are small beside the weights: on a card that is full all the same."""
    text = SMALL.replace("2048", "128").replace("micro_batch_size: 4", "micro_batch_size: 1")
    finding = found(text, "3.5GB", alloc_conf="")["unpadded-sequences"]
    assert finding.severity is Severity.INFO
    assert finding.message.endswith("predicted to have no effect here")


def test_expandable_segments_leave_nothing_to_say_of_widths():
    assert "unpadded-sequences" not in found(SMALL, "24GB")
    assert "unpadded-sequences" in found(SMALL, "24GB", pedantic=True)


def test_what_nothing_comes_of_is_said_on_request():
    rules = {"number-as-string", "legacy-attention-flag", "unknown-key"}
    text = "base_model: meta-llama/Llama-3.2-1B\n" + QUIET
    assert not rules & found(text, "h100").keys()
    assert rules <= found(text, "h100", pedantic=True).keys()
    assert found(text, "h100", select=("number-as-string",)).keys() == {"number-as-string"}


def test_a_project_may_be_pedantic(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.vramwise]\npedantic = true\n")
    (tmp_path / "config.yml").write_text("base_model: meta-llama/Llama-3.2-1B\n" + QUIET)
    path = str(tmp_path / "config.yml")
    for pedantic, said in ((None, True), (False, False)):
        [report] = check(path, gpu="h100", pedantic=pedantic)
        assert ("number-as-string" in {finding.rule for finding in report.findings}) is said


def test_text_where_a_number_is_needed_stays_a_warning():
    text = PADDED + "lr_scheduler_kwargs:\n  min_lr: 1e-5\n"
    assert found(text, "h100")["number-as-string"].severity is Severity.WARNING


def test_a_memory_rule_alone_is_weighed():
    """An error of the file hurts on every card."""
    text = PADDED + "eval_batch_size: 8\nval_set_size: 0.1\nevals_per_epoch: 2\nfsdp: [full_shard]\n"
    findings = found(text, "h200")
    assert findings["eval-batch-differs"].severity is Severity.INFO
    assert findings["removed-key"].severity is Severity.ERROR


# A row has one severity, and nothing in it could choose another.
NO_ROWS = [rule for rule in all_rules() if rule.run.__module__ != "vramwise.rules.rows"]


@pytest.mark.parametrize("rule", NO_ROWS, ids=lambda rule: rule.id)
def test_a_rule_lists_every_severity_that_it_fires_with(rule):
    module = inspect.getmodule(rule.run)
    alone = sum(isinstance(one, Rule) for one in vars(module).values()) == 1
    source = inspect.getsource(module if alone else rule.run)
    named = {Severity(name.lower()) for name in re.findall(r"Severity\.(INFO|WARNING|ERROR)", source)}
    assert named <= set(rule.severities)
    assert rule.severities == tuple(sorted(set(rule.severities), key=lambda one: one.rank))


MAMBA = "base_model: state-spaces/mamba-2.8b-hf\nbf16: true\n"


def test_flash_attention_is_no_remedy_for_a_model_without_attention():
    target = make_target(gpu="h100")
    rule = explain("fp32-embeddings")
    [finding] = check_document(parse_document("config.yml", MAMBA.encode()), target, [rule]).findings
    assert finding.fix is None
    assert "without attention" in finding.message
    hybrid = MAMBA.replace("state-spaces/mamba-2.8b-hf", "Zyphra/Zamba2-7B")
    [finding] = check_document(parse_document("config.yml", hybrid.encode()), target, [rule]).findings
    assert finding.fix is not None


def test_a_key_one_level_too_deep_is_sent_up():
    text = "base_model: meta-llama/Llama-3.2-1B\nspecial_tokens:\n  pad_token: <pad>\n  eot_tokens: [<|eot_id|>]\n"
    document = parse_document("config.yml", text.encode())
    [finding] = check_document(document, make_target(), [explain("unknown-key")]).findings
    assert "it belongs at the top level" in finding.message
    assert "did you mean" not in finding.message
    assert finding.fix is not None
    assert apply_edits(document, finding.fix.edits).values["eot_tokens"] == ["<|eot_id|>"]


LORA = "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"


@pytest.mark.parametrize("version", ["0.18.0", "0.19.0", "0.20.0", "0.21.0"])
@pytest.mark.parametrize(
    ("model_type", "stops"),
    [
        (name, True)
        for name in ["phi3", "phi", "olmo2", "cohere", "glm4_moe", "stablelm", "falcon", "gpt2", "gpt_neox", "qwen2_vl"]
    ]
    + [(name, False) for name in ["llama", "mistral", "qwen2", "qwen3", "gemma3", "gpt_oss", "cohere2", "glm4"]],
)
def test_kernels_that_do_not_know_the_attention(version, model_type, stops):
    run = subject_of_text(f"base_model: some/model\n{LORA}", make_target(versions=(f"axolotl=={version}",))).run
    hits = list(explain("lora-kernels-unknown-attention").run(replace(run, model_type=model_type), None))
    assert bool(hits) is stops


@pytest.mark.parametrize("more", ["lora_mlp_kernel: true\n", "rl: dpo\n", "load_in_8bit: true\n"])
def test_kernels_that_stay_off_stop_nothing(more):
    text = f"base_model: microsoft/Phi-3-mini-4k-instruct\n{LORA}{more}"
    document = parse_document("config.yml", text.encode())
    assert check_document(document, make_target(), [explain("lora-kernels-unknown-attention")]).findings == []


def test_experts_that_stay_wide_are_said_to_grow():
    rule = explain("qlora-experts-unquantised")
    document = parse_document("config.yml", rule.bad.encode())
    [finding] = check_document(document, make_target(gpu="h100"), [rule], predicts=True).findings
    assert "casts them to fp32" in finding.message


def test_an_old_torch_is_refused_up_to_0_20_and_fails_later_since():
    rule = explain("fsdp2-torch-too-old")
    document = parse_document("config.yml", rule.bad.encode())
    for version, said in (("0.20.0", "Axolotl stops"), ("0.21.0", "when the model is wrapped")):
        target = make_target(torch="2.6", gpus=2, versions=(f"axolotl=={version}",))
        [finding] = check_document(document, target, [rule]).findings
        assert finding.message.endswith(said)


@pytest.mark.parametrize(("version", "stops"), [("0.19.0", True), ("0.21.0", False)])
def test_kernels_of_older_releases_stop_reward_models(vramwise, tmp_path, version, stops):
    path = tmp_path / "config.yml"
    path.write_text(
        "base_model: Qwen/Qwen2.5-0.5B\nreward_model: true\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"
        "bf16: true\nmicro_batch_size: 1\n"
    )
    words = ("--gpu", "h100", "--with", f"axolotl=={version}", "--select", "lora-kernels-unknown-attention")
    assert ("PeftModelForCausalLM" in vramwise("check", path, *words).stdout) is stops
