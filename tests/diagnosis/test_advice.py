"""What to change, with a config: the changes that keep the training first, each tried on the ghost run."""

import io

import pytest

import vramwise
from advised_logs import CARD, CONFIG, FULL, logits_at_first_step
from failure_logs import (
    ADAM,
    BACKWARD,
    CROSS,
    EAGER,
    EVAL_LOOP,
    EVALUATE,
    LOSS,
    MLP,
    MODULE,
    OPTIMIZER,
    SAVE,
    SITE,
    STEP,
    TRAIN,
    bar,
    lines,
    losses,
    oom,
    traceback,
)


@pytest.fixture
def diagnose(tmp_path):
    def run(log, config):
        path = tmp_path / "config.yml"
        path.write_text(config, encoding="utf-8")
        return vramwise.diagnose(io.BytesIO(log.encode()), config=str(path))

    return run


def test_the_last_word_is_what_fit_would_write(diagnose, tmp_path):
    cause = diagnose(logits_at_first_step(), CONFIG).causes[0]
    last = cause.remedies[-1]
    assert cause.id == "logits"
    assert last.title.startswith("The fastest that fits: ")
    assert last.survives
    path = tmp_path / "config.yml"
    assert last.command.startswith(f"vramwise fit {path} --gpu ")
    found = vramwise.fit(path, gpu=last.command.split()[4])
    assert found.best.edits == last.fix.edits


def test_losing_data_comes_after_what_does_not(diagnose):
    config = CONFIG.replace("sdpa", "eager").replace("4096", "8192").replace("size: 8", "size: 2")
    figures = oom(
        "16.00 GiB", free="12.20 GiB", allocated="11.00 GiB", pieces="20.00 MiB", **{**CARD, "used": "11.80 GiB"}
    )
    cause = diagnose(lines(bar(0, 400), traceback(TRAIN, STEP, LOSS, MODULE, EAGER), figures), config).causes[0]
    *_, shorter, last = cause.remedies
    assert cause.id == "eager-attention"
    assert last.survives
    assert "+attn_implementation: sdpa" in last.diff
    assert "Rows of 4096" in shorter.title


def test_where_the_training_must_change_the_command_says_which_word_opens_it(diagnose):
    figures = oom("48.00 MiB", free="20.00 MiB", allocated="23.10 GiB", pieces="20.00 MiB", **CARD)
    cause = diagnose(lines(bar(0, 400), traceback(TRAIN, OPTIMIZER, ADAM), figures), FULL).causes[0]
    assert cause.id == "optimizer-state"
    assert " --allow " in cause.remedies[-1].command
    assert cause.remedies[-1].survives


def test_a_parameter_sized_request_is_the_optimizers_where_the_ghost_run_fails_there(diagnose):
    figures = oom("48.00 MiB", free="20.00 MiB", allocated="23.10 GiB", pieces="20.00 MiB", **CARD)
    cause = diagnose(lines(bar(0, 400), figures), FULL).causes[0]
    assert cause.id == "optimizer-state"
    assert "48 MiB = model.layers.0.mlp.gate_proj.weight: 25,165,824 × 2 bytes" in cause.evidence


def test_saving_asks_for_parameters_not_for_logits(diagnose):
    config = FULL + "fsdp_version: 2\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n"
    gather = (f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "full_tensor")
    log = lines(losses(1, 10), traceback(TRAIN, SAVE, gather), oom("1.47 GiB", **CARD))
    diagnosis = diagnose(log, config)
    assert diagnosis.causes[0].id == "save-gather"
    assert "1.5 GiB = model.embed_tokens.weight: 394,002,432 × 4 bytes" in diagnosis.causes[0].evidence
    assert "logits" not in [cause.id for cause in diagnosis.causes]


@pytest.mark.usefixtures("short_searches")
def test_a_late_failure_of_varying_lengths_is_the_long_batch(diagnose):
    config = CONFIG.replace("packing: true", "packing: false").replace("_len: true", "_len: false")
    figures = oom(
        "7.83 GiB", free="4.00 GiB", allocated="19.20 GiB", pieces="40.00 MiB", **{**CARD, "used": "20.00 GiB"}
    )
    log = lines(losses(1, 57), traceback(TRAIN, STEP, BACKWARD), figures)
    causes = diagnose(log, config.replace("size: 8", "size: 4")).causes
    assert causes[0].id == "long-tail"
    assert any("what was requested: logits, 7.8 GiB = 4 × 4096 tokens" in said for said in causes[0].evidence)
    assert any("confirmed by simulation: batches of the full 4096 tokens" in said for said in causes[0].evidence)


def test_memory_in_pieces_is_not_overruled_by_a_ghost_run_that_fails(diagnose):
    config = CONFIG.replace("packing: true", "packing: false").replace("_len: true", "_len: false")
    figures = oom("2.00 GiB", free="300.00 MiB", allocated="15.00 GiB", pieces="7.80 GiB", **CARD)
    log = lines(losses(1, 57), traceback(TRAIN, STEP, LOSS, MODULE, MLP), figures)
    assert diagnose(log, config.replace("size: 8", "size: 4")).causes[0].id == "fragmentation"


def test_an_evaluation_that_failed_after_training_is_a_fact(diagnose):
    figures = oom("31.31 GiB", free="18.40 GiB", allocated="4.70 GiB", **{**CARD, "used": "5.55 GiB"})
    log = lines(losses(1, 20), "  Batch size = 32", traceback(TRAIN, EVALUATE, EVAL_LOOP, LOSS, CROSS), figures)
    cause = diagnose(log, CONFIG.replace("size: 8", "size: 2")).causes[0]
    assert cause.id == "eval-batch"
    assert any("32 × 4096 tokens × 128256 vocabulary × 2 bytes" in said for said in cause.evidence)


@pytest.mark.parametrize(
    ("text", "config", "written", "not_written"),
    [
        ("Your setup doesn't support bf16/gpu. You need Ampere+ GPU", CONFIG, "+fp16: true", "+bf16: auto"),
        ("Your setup doesn't support bf16/gpu. You need Ampere+ GPU", FULL, "+bf16: false", "fp16"),
        ("Attempting to unscale FP16 gradients.", CONFIG.replace("bf16", "fp16"), "+bf16: auto", "+fp16"),
        ("mat1 and mat2 must have the same dtype, but got Float and BFloat16", CONFIG, "", "bf16"),
    ],
)
def test_dtype_remedies_fit_the_config(diagnose, text, config, written, not_written):
    diffs = "".join(remedy.diff for remedy in diagnose(f"ValueError: {text}\n", config).causes[0].remedies)
    assert written in diffs
    assert f"+{not_written}" not in diffs


def test_data_loaders_have_no_part_in_loading(diagnose):
    loading = lines("Loading checkpoint shards:  25%|██▌       | 1/4 [00:05<00:15,  5.10s/it]", "Killed")
    cause = diagnose(loading, CONFIG).causes[0]
    assert cause.id == "host-memory"
    assert not any("dataloader" in remedy.diff for remedy in cause.remedies)


def test_a_log_of_another_run_is_said_to_be_one(diagnose):
    """17 GiB held, by a config that needs far less: no remedy may claim that it would have survived."""
    small = CONFIG.replace("micro_batch_size: 8", "micro_batch_size: 1").replace("4096", "1024")
    log = lines(oom("7.83 GiB", allocated="17.10 GiB", pieces="920.00 MiB", used="18.50 GiB", free="5.12 GiB"))
    found = diagnose(log, small)
    assert found.verdict == "diagnosed"
    assert any("17.1 GiB were allocated, but this config is predicted to allocate" in note for note in found.notes)
    assert not any("contradicted" in said for cause in found.causes for said in cause.evidence)
    assert {remedy.survives for cause in found.causes for remedy in cause.remedies} == {None}
    assert found.next_steps
