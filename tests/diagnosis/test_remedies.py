"""What is advised: nothing that the prediction rejects, the root first, and in the words of the trainer that wrote the log."""

import io

import pytest

import vramwise
from advised_logs import CARD, CONFIG, FULL, logits_at_first_step
from failure_logs import ADAM, CROSS, EAGER, LOSS, MLP, MODULE, OPTIMIZER, SITE, STEP, TRAIN, bar, lines, oom, traceback
from vramwise.trainers.registry import trainer_named

ZERO = (f"{SITE}/deepspeed/runtime/zero/stage_1_and_2.py", "initialize_optimizer_states")
FIGURES = oom("112.00 MiB", free="90.00 MiB", pieces="12.00 MiB")


def diagnose(log, config=None):
    return vramwise.diagnose(io.BytesIO(log.encode()), config=config and str(config))


def written(cause):
    return "\n".join(line for remedy in cause.remedies for line in remedy.keys)


@pytest.fixture
def with_config(tmp_path):
    def run(log, text):
        (tmp_path / "config.yml").write_text(text, encoding="utf-8")
        return diagnose(log, tmp_path / "config.yml").causes[0]

    return run


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("config", "where"),
    [(CONFIG, CROSS), (FULL, ADAM), (CONFIG.replace("4096", "32768"), MLP), (CONFIG.replace("sdpa", "eager"), EAGER)],
)
def test_nothing_is_advised_that_the_prediction_rejects(with_config, config, where):
    calls = (TRAIN, OPTIMIZER, where) if where is ADAM else (TRAIN, STEP, LOSS, MODULE, where)
    figures = oom("2.00 GiB", free="500.00 MiB", allocated="23.00 GiB", pieces="20.00 MiB", **CARD)
    cause = with_config(lines(bar(0, 400), traceback(*calls), figures), config)
    assert not any(remedy.survives is False for remedy in cause.remedies)
    hopeless = [remedy for remedy in cause.remedies if remedy.title.startswith("None of these changes is enough")]
    assert not (hopeless and any(remedy.survives for remedy in cause.remedies))
    assert hopeless or any(remedy.survives for remedy in cause.remedies) or "and not enough" not in str(cause.evidence)


@pytest.mark.usefixtures("short_searches")
def test_what_was_tried_in_vain_is_told_as_evidence(with_config):
    cause = with_config(logits_at_first_step(), CONFIG)
    assert "simulated, and not enough: " in cause.evidence[-1]
    assert "GiB → " in cause.evidence[-1]


def test_the_longest_batch_is_no_reason_to_pad_all(with_config):
    log = lines(
        bar(60, 400), bar(61, 400), traceback(TRAIN, STEP, LOSS, MODULE, MLP), oom("5.00 GiB", pieces="12.00 MiB")
    )
    causes = diagnose(log).causes
    assert causes[0].id == "long-tail"
    assert not any("pad_to_sequence_len" in written(cause) for cause in causes)


def test_where_logits_were_asked_for_a_fused_loss_goes_first():
    log = lines(bar(0, 400), traceback(TRAIN, STEP, LOSS, MODULE, CROSS), oom("7.80 GiB", pieces="12.00 MiB"))
    for cause in diagnose(log).causes:
        if cause.id in ("logits", "capacity", "oversized-batch"):
            assert cause.remedies[0].title.startswith("Compute the loss without holding the logits"), cause.id


def test_an_optimizer_that_deepspeed_shards_may_lie_on_the_host():
    cause = diagnose(lines(traceback(TRAIN, ZERO), FIGURES)).causes[0]
    assert cause.id == "optimizer-state"
    assert '"offload_optimizer": {"device": "cpu"' in cause.remedies[0].keys[0]
    plain = diagnose(lines(bar(0, 9), traceback(TRAIN, OPTIMIZER, ADAM), FIGURES)).causes[0]
    assert "offload" not in written(plain)


@pytest.mark.usefixtures("short_searches")
def test_offloading_is_tried_on_the_ghost_run(with_config):
    sharded = FULL + "deepspeed: deepspeed_configs/zero1.json\n"
    figures = oom("2.00 GiB", free="500.00 MiB", allocated="23.00 GiB", pieces="20.00 MiB", **CARD)
    cause = with_config(lines(traceback(TRAIN, ZERO), figures), sharded)
    assert cause.id == "optimizer-state"
    offered = [remedy for remedy in cause.remedies if "offload" in remedy.title]
    assert "offload" in str(cause.evidence) or offered[0].survives is not False


@pytest.mark.parametrize(
    ("calls", "settings", "has", "has_not"),
    [
        ((TRAIN, STEP), "", "per_device_train_batch_size: half of it", "micro_batch_size"),
        ((TRAIN, STEP), "micro_batch_size: 8\n", "micro_batch_size: 4  # was 8", "per_device"),
        (((f"{SITE}/axolotl/cli/train.py", "do_train"), TRAIN), "", "micro_batch_size: half of it", "per_device"),
        (((f"{SITE}/llamafactory/train/tuner.py", "run_exp"), TRAIN), "", "enable_liger_kernel: true", "plugins"),
        (((f"{SITE}/llamafactory/train/tuner.py", "run_exp"), TRAIN), "cutoff_len: 4096\n", "cutoff_len: 2048", "sequence_len"),
        ((TRAIN, STEP), "", "use_liger_kernel: true", "plugins"),
        ((MLP,), "", "per_device_train_batch_size: half of it", "micro_batch_size"),
    ],
)  # fmt: skip
def test_remedies_in_the_words_of_the_logs_trainer(calls, settings, has, has_not):
    cause = diagnose(lines(settings, traceback(*calls, MLP), FIGURES)).causes[0]
    assert cause.id == "capacity"
    assert has in written(cause)
    assert has_not not in written(cause)


TRL = (f"{SITE}/trl/scripts/sft.py", "main"), (f"{SITE}/trl/trainer/sft_trainer.py", "training_step")
FACTORY = ((f"{SITE}/llamafactory/train/sft/trainer.py", "compute_loss"),)


@pytest.mark.parametrize(
    ("before", "calls", "trainer", "has"),
    [
        ("", TRL, "trl", "load_in_4bit: true"),
        ("", (*TRL, *FACTORY), "llamafactory", "quantization_bit: 4"),
        ("", ((f"{SITE}/axolotl/core/trainers/base.py", "compute_loss"), *TRL), "axolotl", "micro_batch_size: half"),
        ("+ trl sft --config sft.yaml\n", (MLP,), "trl", "max_length: half of it"),
        ("$ llamafactory-cli train sft.yaml\n", (MLP,), "llamafactory", "cutoff_len: half of it"),
        ("[INFO|2026-05-30 12:00:00] llamafactory.hparams.parser:143 >> distributed training: False\n", (MLP,),
         "llamafactory", "cutoff_len: half of it"),
        ("[2026-11-01 10:00:00] [INFO] [axolotl.train.setup_model] loading model\n", (MLP,), "axolotl", "sequence_len: half"),
        ("/opt/LLaMA-Factory/src/train.py started\n", (MLP,), "llamafactory", "cutoff_len"),
        # a dataset, a version and a word that has the letters in it say nothing
        ("dataset trl-lib/Capybara, trl==1.16.0, ctrl.c, control/trl\n", (MLP,), None, "per_device_train_batch_size: half of it"),
    ],
)  # fmt: skip
def test_the_trainer_is_known_by_what_the_log_names(before, calls, trainer, has):
    found = diagnose(lines(before, traceback(*calls, MLP), FIGURES))
    assert found.trainer == trainer
    assert has in written(found.causes[0])
    assert any("the log does not name its trainer" in note for note in found.notes) == (trainer is None)


def test_somebody_may_say_what_trained(request, tmp_path):
    command = request.getfixturevalue("vramwise")
    (tmp_path / "train.log").write_text(lines(FIGURES))
    shown = command("diagnose", tmp_path / "train.log", "--trainer", "llamafactory").output
    assert "cutoff_len" in shown
    assert "does not name its trainer" not in shown
    shown = command("diagnose", tmp_path / "train.log").output
    assert (
        "so Axolotl's keys are shown; use --config or --trainer (llamafactory, unsloth, trl, hf-trainer) for yours"
        in " ".join(shown.split())
    )


PRINTED = "{'loss': 2.1034, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.01}\n"
STARTED = "***** Running training *****\n  Num examples = 52,002\n"


@pytest.mark.parametrize(
    ("before", "calls", "known"),
    [
        ("", (TRAIN, MLP), True),
        ("", (("train.py", "main"), MLP), False),
        (PRINTED, (("train.py", "main"),), False),
        (STARTED, (("train.py", "main"),), False),
    ],
)
def test_a_log_of_plain_transformers_gets_the_names_of_training_arguments(vramwise, tmp_path, before, calls, known):
    (tmp_path / "train.log").write_text(lines(before, traceback(*calls), FIGURES))
    shown = vramwise("diagnose", tmp_path / "train.log").output
    assert "per_device_train_batch_size: half of it" in shown
    assert "gradient_checkpointing: true" in shown
    assert not {"micro_batch_size:", "sequence_len:", "eval_batch_size:", "plugins:"} & set(shown.split())
    assert ("does not name its trainer, so TrainingArguments keys are shown" in " ".join(shown.split())) is not known


def test_a_trainer_on_top_of_transformers_keeps_its_own_words(vramwise, tmp_path):
    named = "[axolotl.train] starting\n"
    (tmp_path / "train.log").write_text(lines(named, STARTED, PRINTED, traceback(TRAIN, MLP), FIGURES))
    shown = vramwise("diagnose", tmp_path / "train.log").output
    assert "micro_batch_size: half of it" in shown.replace("per_device_train_batch_size", "")


def test_vllms_share_is_named_by_trls_own_key(vramwise, tmp_path):
    failed = "ValueError: No available memory for the cache blocks. Try increasing it.\n"
    (tmp_path / "train.log").write_text(lines("trl grpo --config grpo.yaml\n", failed))
    shown = vramwise("diagnose", tmp_path / "train.log").output
    assert "vllm_max_model_length: half of it" in shown
    assert " gpu_memory_utilization" not in shown


def test_every_trainer_knows_the_remedies_that_memory_asks_for():
    for name in ("axolotl", "trl", "llamafactory", "hf-trainer"):
        for change in ("smaller-micro-batch", "checkpoint-activations", "eight-bit-optimizer", "quantize-base"):
            assert trainer_named(name).words.get(change), (name, change)
        assert trainer_named(name).words.get("shorten-rows")
        assert trainer_named(name).words.get("equal-eval-batch")
