"""`vramwise predict` end to end: the verdict, exit codes, data, limits, what-if, files, bad input."""

import json
import pickle
import re

import pytest

from predicted_runs import MODEL, predicted

CONFIG = """\
base_model: model
sequence_len: 512
pad_to_sequence_len: true
micro_batch_size: 2
bf16: true
gradient_checkpointing: true
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return path


def test_the_verdict_is_the_first_line(vramwise, config):
    result = vramwise("predict", config, "--gpu", "rtx-4090")
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert first.startswith("✓ Fits: ")
    assert "GiB reserved, 22.8 usable)" in first
    for words in ("At the peak", "no RTX 4090 was measured", "CUDA context"):
        assert words in result.stdout
    whole = vramwise("predict", config, "--gpu", "rtx-4090", "--verbose").stdout
    for words in ("At the peak", "Phase by phase", "Assumptions", "Expected error", "CUDA context", "fragmentation"):
        assert words in whole


def test_without_a_card_it_still_tells_what_is_needed(vramwise, config):
    result = vramwise("predict", config)
    assert result.exit_code == 0
    assert "--gpu" in result.stdout.splitlines()[0]
    assert predicted(vramwise, config)["fits"] is None


def test_what_does_not_fit_names_the_place(vramwise, config):
    result = vramwise("predict", config, "--gpu", "1GB")
    assert result.exit_code == 1
    assert result.stdout.startswith("✗ Does not fit: ")
    failure = predicted(vramwise, config, "--gpu", "1GB")["out_of_memory"]
    assert failure["requested_bytes"] > 0
    assert failure["phase"]


def test_json_has_the_promised_names(vramwise, config):
    document = predicted(vramwise, config, "--gpu", "rtx-4090")
    promised = (
        "version engine model gpu fits peak_allocated_bytes peak_reserved_bytes device_bytes out_of_memory retries "
        "phases breakdown assumptions expected_error"
    )
    assert set(promised.split()) <= set(document)
    assert document["version"] == 1
    assert document["peak_allocated_bytes"] <= document["peak_reserved_bytes"] < document["device_bytes"]
    parts = sum(size for name, size in document["breakdown"].items() if name != "cuda_context")
    assert parts == document["peak_reserved_bytes"]


def test_a_limit_brings_retries_or_an_end(vramwise, config):
    needs = predicted(vramwise, config)["peak_reserved_bytes"]
    roomy = predicted(vramwise, config, "--memory-limit", f"{needs // 2**20 + 64}MiB")
    assert roomy["fits"] is True
    tight = predicted(vramwise, config, "--memory-limit", f"{needs // 2**21}MiB")
    assert tight["fits"] is False
    assert tight["out_of_memory"] is not None


def test_what_if_shows_the_change_beside_it(vramwise, config):
    result = vramwise("predict", config, "--what-if", "micro_batch_size=1", "--what-if", "sequence_len=256")
    assert "What if micro_batch_size=1, sequence_len=256" in result.stdout
    document = predicted(vramwise, config, "--what-if", "micro_batch_size=1")
    assert document["what_if"]["peak_allocated_bytes"] < document["peak_allocated_bytes"]


def test_lengths_decide_the_shapes(vramwise, config, tmp_path):
    config.write_text(CONFIG.replace("pad_to_sequence_len: true", "pad_to_sequence_len: false"))
    (tmp_path / "short.txt").write_text("100\n90\n80\n70\n")
    (tmp_path / "samples.jsonl").write_text('{"text": "%s"}\n{"input_ids": [1, 2, 3]}\n' % ("word " * 400))
    worst = predicted(vramwise, config)
    short = predicted(vramwise, config, "--lengths", tmp_path / "short.txt")
    samples = predicted(vramwise, config, "--lengths", tmp_path / "samples.jsonl")
    assert short["peak_allocated_bytes"] < samples["peak_allocated_bytes"] < worst["peak_allocated_bytes"]
    assert any("estimated" in note for note in samples["assumptions"])
    assert any("--data or --lengths gives the real lengths" in note for note in worst["assumptions"])


def test_a_long_list_of_lengths_is_shortened_and_that_is_said(vramwise, config, tmp_path):
    config.write_text(CONFIG.replace("pad_to_sequence_len: true", "pad_to_sequence_len: false"))
    (tmp_path / "many.txt").write_text("100\n" * 999 + "500\n")
    many = predicted(vramwise, config, "--lengths", tmp_path / "many.txt")
    assert any("65 of 500 micro-batches" in note for note in many["assumptions"])
    told = predicted(vramwise, config, "--lengths", tmp_path / "many.txt", "--steps", "2")
    assert not any("micro-batches are simulated" in note for note in told["assumptions"])
    assert told["peak_allocated_bytes"] < many["peak_allocated_bytes"]
    shown = vramwise("predict", config, "--lengths", tmp_path / "many.txt", "--verbose").stdout
    assert "step 65 backward" in shown
    assert "steps 3–64 forward" in shown
    assert len(shown.splitlines()) < 70


def test_fsdp_checkpoints_by_its_own_setting(vramwise, config):
    lines = (
        CONFIG.replace("gradient_checkpointing: true\n", "")
        + "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n"
    )
    config.write_text(lines)
    kept = predicted(vramwise, config, "--gpus", "2")["breakdown"]["activations"]
    config.write_text(lines + "  activation_checkpointing: true\n")
    assert predicted(vramwise, config, "--gpus", "2")["breakdown"]["activations"] < kept / 2


@pytest.mark.parametrize("written", ["all-linear", "'.*[qkvo]_proj|.*mlp.*'"])
def test_targets_may_be_one_string_as_in_peft(vramwise, config, written):
    config.write_text(CONFIG + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n")
    every = predicted(vramwise, config)
    config.write_text(CONFIG + f"adapter: lora\nlora_r: 8\nlora_target_modules: {written}\n")
    assert predicted(vramwise, config)["breakdown"] == every["breakdown"]


def test_targets_that_are_no_expression_are_named(vramwise, config):
    config.write_text(CONFIG + "adapter: lora\nlora_r: 8\nlora_target_modules: '*_proj'\n")
    result = vramwise("predict", config)
    assert result.exit_code == 2
    assert "lora_target_modules: '*_proj' is not a regular expression" in str(result.exception)


def test_engines_differ_in_the_embeddings(vramwise, config):
    axolotl = predicted(vramwise, config, "--engine", "axolotl")
    plain = predicted(vramwise, config, "--engine", "transformers")
    assert axolotl["peak_allocated_bytes"] > plain["peak_allocated_bytes"]


def test_cards_are_listed(vramwise, config):
    assert "RTX 4090" in vramwise("predict", config, "--cards").stdout
    cards = predicted(vramwise, config, "--cards")["cards"]
    assert all(card["fits"] for card in cards)


def test_html_and_snapshot_are_written(vramwise, config, tmp_path):
    page, snapshot = tmp_path / "report.html", tmp_path / "run.pickle"
    result = vramwise("predict", config, "--gpu", "rtx-4090", "--html", page, "--snapshot", snapshot)
    assert result.exit_code == 0
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    content = pickle.loads(snapshot.read_bytes())
    assert content["segments"]
    assert content["device_traces"][0]
    replayed = json.loads(vramwise("replay", snapshot, "--format", "json").stdout)
    assert replayed["mismatches"] == 0


def test_check_uses_the_prediction(vramwise, config):
    result = vramwise("check", config, "--gpu", "1GB", "--format", "json")
    assert "does-not-fit" in {found["rule"] for found in json.loads(result.stdout)["files"][0]["findings"]}
    skipped = json.loads(vramwise("check", config, "--gpu", "1GB", "--no-predict", "--format", "json").stdout)
    assert {"rule": "does-not-fit", "needs": "memory"} in skipped["files"][0]["skipped"]


def test_check_says_what_a_finding_costs(vramwise, config):
    config.write_text(CONFIG + "val_set_size: 0.1\neval_steps: 2\neval_batch_size: 16\n")
    found = json.loads(vramwise("check", config, "--gpu", "a100", "--format", "json").stdout)["files"][0]["findings"]
    message = next(item["message"] for item in found if item["rule"] == "eval-batch-differs")
    assert "predicted to reserve" in message


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "no/such-model"], "config.json"),
        (["--lengths", "nowhere.txt"], "cannot be read"),
        (["--memory-limit", "much"], "is not a size"),
        (["--model", "no/such-model", "--offline"], "hf download no/such-model config.json"),
        (["--what-if", "nonsense"], "key=value"),
        (["--what-if", "micro_batchsize=1"], "did you mean micro_batch_size"),
        (["--gpu", "rtx-9999"], "rtx-9999"),
        (["--html", "/no/such/folder/x.html"], "cannot write"),
    ],
)
def test_bad_usage_is_one_sentence(vramwise, config, words, sentence):
    result = vramwise("predict", config, *words)
    assert result.exit_code == 2
    assert sentence in str(result.exception)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("optimizer: no_such_optimizer\n", "no_such_optimizer"),
        ("sequence_len: 512\nattn_implementation: no_such_kernel\n", "no_such_kernel attention"),
    ],
)
def test_what_was_never_measured_is_said_in_the_first_lines(vramwise, config, line, named):
    assert predicted(vramwise, config)["expected_error"]["applies"] is True
    config.write_text(CONFIG.replace("sequence_len: 512\n", "") + "sequence_len: 512\n" * ("seq" not in line) + line)
    error = predicted(vramwise, config)["expected_error"]
    assert error["applies"] is False
    assert error["outside"] == [named]
    second = vramwise("predict", config, "--gpu", "h100").stdout.splitlines()[1]
    assert f"never measured with axolotl: {named}" in second
    assert "no H100 80GB was measured" in second


def test_what_is_not_modelled_gets_a_range_and_never_a_bare_verdict(vramwise, config):
    config.write_text(CONFIG + "torch_compile: true\n")
    whole = predicted(vramwise, config)["range"]
    assert whole["lower_bytes"] < whole["upper_bytes"]
    between = (whole["lower_bytes"] + whole["upper_bytes"]) // 2
    document = predicted(vramwise, config, "--memory-limit", f"{between}B")
    assert document["fits"] is None
    assert document["verdict"]["kind"] == "may_fit"
    assert document["expected_error"]["outside"] == ["torch.compile"]
    roomy = predicted(vramwise, config, "--gpu", "a100-80gb")
    assert roomy["fits"] is True, "the most it can take fits"
    assert "at most" in roomy["verdict"]["text"]
    config.write_text(CONFIG + "torch_compile: true\n")
    too_small = predicted(vramwise, config, "--memory-limit", f"{whole['lower_bytes'] // 2}B")
    assert too_small["fits"] is False


def test_bad_lengths_name_the_line(vramwise, config, tmp_path):
    (tmp_path / "l.txt").write_text("100\nmany\n")
    result = vramwise("predict", config, "--lengths", tmp_path / "l.txt")
    assert result.exit_code == 2
    assert "l.txt:2" in str(result.exception)


@pytest.mark.parametrize("model", ["{", "[]", '{"model_type": "llama"}', '{"model_type": "mamba", "hidden_size": 8}'])
def test_a_broken_config_json_is_named(vramwise, config, tmp_path, model):
    (tmp_path / "model" / "config.json").write_text(model)
    result = vramwise("predict", config)
    assert result.exit_code == 2
    assert "config.json" in str(result.exception) or "mamba" in str(result.exception)


def test_a_size_alone_says_whose_multiprocessors_are_taken(vramwise, config):
    notes = predicted(vramwise, config, "--gpu", "24GB")["assumptions"]
    assert any("24GB is assumed to have as many multiprocessors as an H200 (132)" in note for note in notes)
    assert not any(
        "multiprocessors" in note for note in predicted(vramwise, config, "--gpu", "rtx-3050")["assumptions"]
    )


def unpadded(config, *more):
    config.write_text(CONFIG.replace("pad_to_sequence_len: true", "pad_to_sequence_len: false") + "".join(more))


def test_data_decides_the_shapes_and_is_named(vramwise, config, tmp_path):
    unpadded(config)
    (tmp_path / "d.jsonl").write_text('{"text": "%s"}\n' % ("word " * 30) * 8)
    full = predicted(vramwise, config)
    short = predicted(vramwise, config, "--data", tmp_path / "d.jsonl")
    assert short["peak_allocated_bytes"] < full["peak_allocated_bytes"]
    assert any(line.startswith("Row lengths from ") for line in short["reasons"])
    wrong = vramwise("predict", config, "--data", tmp_path / "none.jsonl")
    assert wrong.exit_code == 2
    assert "does not exist" in str(wrong.exception)
    both = vramwise("predict", config, "--data", tmp_path, "--lengths", tmp_path / "d.jsonl")
    assert both.exit_code == 2


def test_local_data_of_the_config_is_read_unasked(vramwise, config, tmp_path):
    (tmp_path / "d.jsonl").write_text('{"text": "%s"}\n' % ("word " * 30) * 8)
    unpadded(config, "datasets:\n  - path: d.jsonl\n    type: completion\n")
    read = predicted(vramwise, config)
    assert any("d.jsonl" in note for note in read["assumptions"])
    full = predicted(vramwise, config, "--data", "")
    assert read["peak_allocated_bytes"] < full["peak_allocated_bytes"]
    other = predicted(vramwise, config, "--what-if", "datasets=")
    assert other["what_if"]["peak_allocated_bytes"] == full["peak_allocated_bytes"]


def test_full_rows_that_do_not_fit_are_a_warning_where_shorter_ones_do(vramwise, config, tmp_path):
    unpadded(config)
    card = ("--gpu", "3GB")
    config.write_text(config.read_text().replace("micro_batch_size: 2", "micro_batch_size: 16"))
    document = predicted(vramwise, config, *card)
    assert document["fits"] is False
    assert document["verdict"]["kind"] == "may_fit"
    rows = document["verdict"]["rows_up_to"]
    assert 64 <= rows < 512
    found = json.loads(vramwise("check", config, *card, "--format", "json").stdout)["files"][0]["findings"]
    (misfit,) = [one for one in found if one["rule"] == "does-not-fit"]
    assert misfit["severity"] == "warning"
    assert f"no row exceeds about {rows}:" in misfit["message"]
    (tmp_path / "short.txt").write_text(f"{rows}\n{rows - 1}\n" * 16)
    assert predicted(vramwise, config, *card, "--lengths", tmp_path / "short.txt")["fits"] is True
    (tmp_path / "long.jsonl").write_text('{"length": 512}\n' * 16)
    known = json.loads(vramwise("check", config, *card, "--data", tmp_path / "long.jsonl", "--format", "json").stdout)[
        "files"
    ][0]["findings"]
    assert [one["severity"] for one in known if one["rule"] == "does-not-fit"] == ["error"]


def test_a_remedy_is_predicted_and_its_command_shows_what_was_said(vramwise, config):
    config.write_text(CONFIG.replace("micro_batch_size: 2", "micro_batch_size: 16"))
    document = predicted(vramwise, config, "--gpu", "3GB")
    assert document["verdict"]["kind"] == "does_not_fit"
    assert document["remedies"]
    for remedy in document["remedies"]:
        words = remedy["options"].replace("'", "").split()
        tried = predicted(vramwise, config, "--gpu", "3GB", *words)["what_if"]
        assert tried["fits"] is True
        assert tried["verdict"]["kind"] in ("fits", "tight")
    shown = vramwise("predict", config, "--gpu", "3GB").stdout
    assert f"    vramwise fit {config} --gpu 3GB\n" in shown


def test_values_of_one_key_stand_side_by_side(vramwise, config):
    words = [word for size in (1, 2, 4) for word in ("--what-if", f"micro_batch_size={size}")]
    document = predicted(vramwise, config, *words, "--what-if", "sequence_len=256")
    assert [one["changes"] for one in document["what_ifs"]] == [
        [f"micro_batch_size={size}", "sequence_len=256"] for size in (1, 2, 4)
    ]
    assert document["what_if"] == document["what_ifs"][-1]
    shown = vramwise("predict", config, *words).stdout
    assert all(f"micro_batch_size={size} " in shown for size in (1, 2, 4))
    many = [word for size in range(1, 18) for word in ("--what-if", f"micro_batch_size={size}")]
    assert "17 combinations" in str(vramwise("predict", config, *many).exception)


def test_a_config_that_shards_on_one_card_is_told_of_gpus(vramwise, config):
    config.write_text(CONFIG + "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n")
    assert any("--gpus N" in line for line in predicted(vramwise, config, "--gpu", "h100")["reasons"])
    several = predicted(vramwise, config, "--gpu", "h100", "--gpus", "2")
    assert not any("--gpus N" in line for line in several["reasons"])
    assert "each of 2 ×" in several["verdict"]["text"]


def test_the_table_shows_the_moment_that_the_verdict_names(vramwise, config):
    """Loading a 4-bit base takes more than training it, divided among eight cards."""
    lines = ("adapter: qlora", "load_in_4bit: true", "lora_r: 8", "lora_alpha: 16", "lora_target_linear: true")
    sharded = ("fsdp_version: 2", "fsdp_config:", "  cpu_ram_efficient_loading: false")
    wrapped = "  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
    text = CONFIG.replace("512", "128").replace("base_model: model", "base_model: meta-llama/Llama-3.1-8B")
    config.write_text(text + "\n".join((*lines, *sharded)) + "\n" + wrapped)
    shown = vramwise("predict", config, "--gpu", "8GB", "--gpus", "8").stdout
    assert "Peak while loading, with " in shown
    held = shown.split("Peak while loading, with ")[1].split(" allocated")[0]
    table = shown.split("At the peak (loading)")[1]
    assert held in table.splitlines()[1]


def second_line(result) -> str:
    return result.stdout.splitlines()[1].strip()


def on_h200(vramwise, config, verb: str, text: str):
    config.write_text(CONFIG + "sdp_attention: true\n" + text)
    return vramwise(verb, config, "--gpu", "h200", "--torch", "2.13")


COMPARED = re.compile(r"ith (\S+) it trains about (\d\.\d\d) × as fast as (.+), and reserves (.+)")


def test_compile_and_fp8_are_compared_with_the_run_without_them(vramwise, config):
    for text, name, plain in (
        ("torch_compile: true\n", "torch.compile", "uncompiled"),
        ("torch_compile: true\nfp8: true\n", "fp8", "in bf16"),
        ("fp8: true\n", "fp8", "in bf16"),
    ):
        found = [COMPARED.search(second_line(on_h200(vramwise, config, verb, text))) for verb in ("predict", "fit")]
        assert found[0] is not None
        assert found[1] is not None
        assert found[0].groups() == found[1].groups()
        assert found[0][1] == name
        assert found[0][3] == plain


def test_the_comparison_is_that_of_two_predictions(vramwise, config):
    said = COMPARED.search(second_line(on_h200(vramwise, config, "predict", "fp8: true\n")))
    rate = {}
    for name, text in (("fp8", "fp8: true\n"), ("bf16", "")):
        config.write_text(CONFIG + "sdp_attention: true\n" + text)
        result = vramwise("predict", config, "--gpu", "h200", "--torch", "2.13", "--format", "json")
        rate[name] = json.loads(result.stdout)["speed"]["tokens_per_second"]
    assert float(said[2]) == pytest.approx(rate["fp8"] / rate["bf16"], abs=0.006)


def test_a_range_is_said_to_be_one(vramwise, config):
    result = on_h200(vramwise, config, "predict", "torch_compile: true\nsample_packing: true\n")
    assert second_line(result).startswith(
        "What torch.compile costs and brings against the same run uncompiled is not known"
    )


def test_a_plain_run_is_compared_with_nothing(vramwise, config):
    assert "as fast as" not in on_h200(vramwise, config, "predict", "").stdout


def test_check_says_what_uncompiled_fp8_costs(vramwise, config):
    said = on_h200(vramwise, config, "check", "fp8: true\n").stdout
    assert re.search(
        r"fp8-without-compile: .*; predicted: with fp8 it trains about \d\.\d\d × as fast as in bf16", said
    )
