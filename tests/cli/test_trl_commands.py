"""TRL's files through every command, as a user would."""

import json
from pathlib import Path

import pytest

from vramwise.trainers import trl
from vramwise.trainers.releases import known_versions

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "trl-sft.yml"
SMALL = """\
model_name_or_path: HuggingFaceTB/SmolLM2-135M
dataset_name: trl-lib/Capybara
use_peft: true # LoRA
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_length: 256
learning_rate: 2.0e-4
eval_strategy: steps
"""
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 100.00 MiB is free. Of the allocated memory 22.11 GiB is allocated by PyTorch, and 300.00 MiB is reserved "
    "by PyTorch but unallocated.\n"
)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text(SMALL)
    return path


def test_check_speaks_trls_keys(vramwise, config):
    done = vramwise("check", config, "--format", "json", "--no-predict")
    (report,) = json.loads(done.stdout)["files"]
    found = {one["rule"]: one for one in report["findings"]}
    assert {"eval-batch-differs", "fp32-base", "unpadded-sequences", "allocator-not-expandable"} <= set(found)
    assert "per_device_eval_batch_size 8" in found["eval-batch-differs"]["message"]
    assert "micro_batch_size" not in done.stdout.split('"resolved"')[0]
    assert done.exit_code == 1


def test_fix_writes_what_keeps_the_result_and_leaves_the_rest(vramwise, config):
    done = vramwise("fix", config)
    after = config.read_text()
    assert "per_device_eval_batch_size: 2\n" in after
    assert "env:\n  PYTORCH_ALLOC_CONF: expandable_segments:True\n" in after
    assert "use_peft: true # LoRA\n" in after
    assert "dtype" not in after  # rounds otherwise: only where it is asked for
    assert done.exit_code in (0, 1)
    vramwise("fix", config, "--unsafe-fixes")
    assert "dtype: bfloat16\n" in config.read_text()
    again = vramwise("check", config, "--no-predict", "--min-severity", "warning")
    assert again.exit_code == 0, again.output


def test_predict_and_what_if(vramwise, config):
    config.write_text(SMALL.replace("eval_strategy: steps\n", ""))
    done = vramwise("predict", config, "--gpu", "rtx-4090", "--what-if", "dtype=bfloat16")
    assert "gone: info fp32-base" in done.output
    newest = known_versions(trl.__file__)[-1]
    assert f"trl {newest}" in vramwise("predict", config, "--gpu", "rtx-4090", "--verbose").output
    wrong = vramwise("predict", config, "--gpu", "rtx-4090", "--what-if", "per_device_batch=1")
    assert wrong.exit_code == 2
    assert "did you mean per_device_" in str(wrong.exception)


def test_the_example_fits_once_it_is_mended(vramwise, tmp_path):
    done = vramwise("check", EXAMPLE, "--gpu", "rtx-4090")
    assert done.exit_code == 1
    assert "does-not-fit" in done.output
    assert "fp32-base" in done.output
    path = tmp_path / "sft.yml"
    path.write_text(EXAMPLE.read_text())
    vramwise("fix", path, "--unsafe-fixes", "--gpu", "rtx-4090")
    done = vramwise("check", path, "--gpu", "rtx-4090")
    assert done.exit_code == 0, done.output


def test_explain(vramwise):
    done = vramwise("explain", "fp32-base")
    assert "dtype: bfloat16" in done.output


def test_diagnose_with_the_config(vramwise, tmp_path, config):
    log = tmp_path / "train.log"
    log.write_text(OOM)
    done = vramwise("diagnose", log, "--config", config, "--gpu", "rtx-4090")
    assert "Ghost run" in done.output
    assert "per_device_train_batch_size" in done.output


def test_sarif_and_github_name_the_line(vramwise, config):
    config.write_text(SMALL + "per_device_eval_batch_size: 16\n")
    line = len(config.read_text().splitlines())
    assert f"line={line}," in vramwise("check", config, "--format", "github", "--no-predict").stdout
    assert json.loads(vramwise("check", config, "--format", "sarif", "--no-predict").stdout)["runs"]


def test_arguments_as_json_stay_json(vramwise, tmp_path):
    path = tmp_path / "training_args.json"
    path.write_text(
        json.dumps(
            {
                "model_name_or_path": "HuggingFaceTB/SmolLM2-135M",
                "output_dir": "out",
                "per_device_train_batch_size": 2,
                "num_train_epochs": 1,
                "lr_scheduler_type": "cosine",
                "bf16": True,
                "eval_strategy": "steps",
            },
            indent=2,
        )
    )
    vramwise("fix", path)
    assert json.loads(path.read_text())["per_device_eval_batch_size"] == 2


OLD = (
    "model_name_or_path: HuggingFaceTB/SmolLM2-135M\ntorch_dtype: bfloat16\ndataset_name: trl-lib/pairs\nbeta: 0.1\n"
    "learning_rate: 5.0e-7\nmax_length: 256\n"
)


@pytest.fixture
def weights(vramwise, tmp_path):
    """The type that weights are loaded in, by the file and how it is started."""

    def run(text, *options):
        path = tmp_path / "dpo.yaml"
        path.write_text(text)
        done = vramwise("check", path, "--trainer", "trl:dpo", "--no-predict", "--format", "json", *options)
        return json.loads(done.stdout)["files"][0]["resolved"]["weights_dtype"]

    return run


def test_the_old_name_of_dtype_is_what_the_run_is_meant_to_have(weights):
    """TRL's command stops since 0.27: what is told is the run once it starts. A script drops it."""
    newest = ("--with", "trl==1.16.0")
    assert weights(OLD, *newest) == "bf16"
    assert weights(OLD, "--launcher", "module") == "fp32"
    assert weights(OLD.replace("bfloat16", "null"), *newest) == "fp32"
    assert weights(OLD + "dtype: float16\n", *newest) == "fp16"
    assert weights(OLD) == "bf16"  # as written, with the release that it was written for


def test_model_init_kwargs_say_the_type_where_trl_hands_them_on(weights):
    plain = OLD.replace("torch_dtype: bfloat16\n", "")
    new, old = (f"{plain}model_init_kwargs:\n  {key}: bfloat16\n" for key in ("dtype", "torch_dtype"))
    assert weights(new, "--with", "trl==1.16.0") == "bf16"
    assert weights(new, "--with", "trl==1.9.0") == "fp32"  # its scripts put their own in the place
    assert weights(old, "--with", "trl==1.16.0") == "fp32"  # dtype is float32, and the new name wins
    assert weights(f"{old}dtype: null\n", "--with", "trl==1.16.0") == "bf16"


def test_predict_says_what_the_run_needs_once_the_key_is_renamed(vramwise, tmp_path):
    path, needs = tmp_path / "dpo.yaml", []
    for text in (OLD, OLD.replace("torch_dtype", "dtype")):
        path.write_text(text)
        words = ("--trainer", "trl:dpo", "--gpu", "rtx-4090", "--with", "trl==1.16.0", "--format", "json")
        done = vramwise("predict", path, *words)
        needs.append(json.loads(done.stdout)["peak_reserved_bytes"])
    assert needs[0] == needs[1]


@pytest.mark.parametrize("value", ["null", "bfloat16", "float16"])
@pytest.mark.parametrize("more", ["", "dtype: bfloat16\n"])
def test_fixes_leave_a_file_that_starts(vramwise, tmp_path, value, more):
    path = tmp_path / "dpo.yaml"
    path.write_text(OLD.replace("bfloat16", value) + more)
    vramwise("fix", path, "--trainer", "trl:dpo", "--gpu", "rtx-4090", "--no-predict", "--unsafe-fixes")
    assert "torch_dtype" not in path.read_text()
    left = vramwise("check", path, "--trainer", "trl:dpo", "--gpu", "rtx-4090", "--no-predict", "--format", "json")
    assert all(one["severity"] != "error" for one in json.loads(left.stdout)["files"][0]["findings"])
