"""Remedies can run where the run was, and causes of memory beyond torch's are told by figures, stages and words."""

import io
from pathlib import Path

import pytest

from failure_logs import (
    BACKWARD,
    EVAL_LOOP,
    EVALUATE,
    LOAD,
    MLP,
    MODULE,
    SAVE,
    SITE,
    STEP,
    TRAIN,
    bar,
    lines,
    oom,
    traceback,
)
from vramwise.bundled import bundled_json
from vramwise.diagnosis import advice, circumstances
from vramwise.diagnosis.read.phases import stages
from vramwise.diagnosis.read.said import said
from vramwise.diagnosis.reading import read_all
from vramwise.opening.options import Options
from vramwise.trainers.registry import TRAINER_NAMES

TO_CPU = (f"{SITE}/unsloth_zoo/gradient_checkpointing.py", "forward", 'saved = hidden.to("cpu", non_blocking = True)')
SDPA = ("modeling_qwen2_vl.py", "forward", "out = F.scaled_dot_product_attention(q, k, v, attention_mask)")
MPS = "RuntimeError: MPS backend out of memory (MPS allocated: 11.14 GB, other allocations: 6.65 GB, max allowed: 18.13 GB). Tried to allocate 375.40 MB on private pool."
SIBLINGS = " ".join(f"Process {4310 + at} has 398.00 MiB memory in use." for at in range(4))


def diagnose(text, gpu=None):
    return read_all(io.BytesIO(text.encode()), options=Options(gpu=gpu) if gpu else None).diagnosis


def titles(cause):
    return "\n".join([remedy.title for remedy in cause.remedies] + [key for one in cause.remedies for key in one.keys])


def first(text, gpu=None):
    return diagnose(text, gpu).causes[0]


@pytest.mark.parametrize(
    ("text", "gpu", "has", "has_not"),
    [
        (lines(traceback(TRAIN, STEP, BACKWARD), MPS), None, ["Halve the micro-batch"], ["Liger", "4 bits", "8 bits"]),
        ("RuntimeError: expected scalar type BFloat16 but found Float\n", "t4", ["no bf16"], ["bf16: auto"]),
        ("RuntimeError: expected scalar type BFloat16 but found Float\n", "a100-40gb", ["bf16: auto"], ["no bf16"]),
        (lines(traceback(LOAD), oom("112.00 MiB")), None, ["4 bits", "ZeRO-3"], ["micro-batch"]),
        (lines(traceback(TRAIN, SAVE), oom("112.00 MiB")), None, ["bitsandbytes"], ["micro-batch", "fsdp_config"]),
        (lines(traceback(TRAIN, EVALUATE, EVAL_LOOP, (f"{SITE}/transformers/trainer_pt_utils.py", "nested_concat")),
               oom("9.00 GiB")), None, ["eval_accumulation_steps: 1", "prediction_loss_only: true"], []),
        (lines("{'per_device_train_batch_size': 1}", bar(0, 9), traceback(TRAIN, STEP, MODULE, MLP), oom("112.00 MiB")),
         None, ["gradient checkpointing"], ["micro-batch"]),
        (lines("gradient_checkpointing: true", bar(0, 9), traceback(TRAIN, STEP, MODULE, MLP), oom("112.00 MiB")),
         None, ["Halve the micro-batch"], ["gradient checkpointing"]),
    ],
)  # fmt: skip
def test_a_remedy_can_run_there(text, gpu, has, has_not):
    shown = titles(first(text, gpu))
    assert [word for word in has if word not in shown] == []
    assert [word for word in has_not if word in shown] == []


@pytest.mark.parametrize(
    ("text", "cause", "says"),
    [
        (oom("2.00 MiB", total="79.00 GiB", free="37.30 GiB", allocated="6.10 GiB", pieces="100.00 MiB", used="7.00 GiB"),
         "not-a-shortage", "37.3 GiB of the card were free"),
        (lines(oom("136.00 MiB", total="23.65 GiB", free="93.81 MiB", allocated="21.51 GiB", pieces="2.30 MiB", used="21.98 GiB")
               .replace("Including", SIBLINGS + " Including")), "capacity", "21.5 GiB of 23.6 GiB"),
        (lines(traceback(TRAIN, STEP, MODULE, SDPA), oom("40.00 GiB", total="79.00 GiB", free="20.00 GiB", allocated="50.00 GiB", pieces="9.00 MiB", used="52.00 GiB")),
         "masked-attention", "vision tower"),
        (lines(traceback(TRAIN, STEP, TO_CPU), "RuntimeError: CUDA error: out of memory"), "host-memory", "pin"),
        (lines(traceback((f"{SITE}/peft/tuners/lora/model.py", "merge_and_unload")), oom("112.00 MiB")), "merge", "second copy"),
        (lines(traceback(TRAIN, (f"{SITE}/transformers/generation/utils.py", "_sample")), oom("2.00 GiB")), "generation", "KV cache"),
        (lines(traceback((f"{SITE}/torch/nn/parallel/distributed.py", "__init__")), oom("2.00 GiB")), "load", "every card"),
        ("Your session crashed after using all available RAM.\n", "host-memory", "host memory"),
        ("The GPU memory grows a little every step until CUDA runs out of memory.\n", "leak", "at every step"),
    ],
)  # fmt: skip
def test_causes_by_figures_stages_and_words(text, cause, says):
    found = diagnose(text)
    assert [one.id for one in found.causes][:1] == [cause], found.causes
    assert says in found.sentence


def test_contexts_of_sibling_ranks_are_no_other_process():
    message = oom(
        "136.00 MiB", total="23.65 GiB", free="93.81 MiB", allocated="21.51 GiB", pieces="2.30 MiB", used="21.98 GiB"
    )
    causes = diagnose(message.replace("Including", SIBLINGS + " Including")).causes
    siblings = next(cause for cause in causes if cause.id == "rank-contexts")
    assert "4 other ranks of this run hold 1.6 GiB" in siblings.sentence
    assert "other-process" not in [cause.id for cause in causes]
    strangers = message.replace(
        "Including", "Process 9 has 900.00 MiB memory in use. Process 90000 has 800.00 MiB memory in use. Including"
    )
    assert "rank-contexts" not in [cause.id for cause in diagnose(strangers).causes]


def test_host_memory_has_a_budget():
    log = lines(
        "trainable params: 14,770,033,664 || all params: 14,770,033,664 || trainable%: 100.0000",
        "[INFO] [launch.py:148:main] nnodes=1, num_local_procs=3, node_rank=0",
        "E1118 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 25572) of binary: python",
    )
    evidence = " ".join(first(log).evidence)
    assert "14,770,033,664 parameters take 27.5 GiB of host memory in bf16 (55.0 GiB in fp32)" in evidence
    assert "82.5 GiB for 3" in evidence


def test_what_was_tried_is_not_advised_again():
    told = "I already tried a smaller batch size, but it still fails.\n"
    assert "micro-batch" not in titles(first(told + oom("112.00 MiB") + "\n"))
    assert "micro-batch" in titles(first(oom("112.00 MiB") + "\n"))


def test_training_that_went_well_for_a_while_met_a_longer_batch():
    assert first("It runs out of memory after a few hours of training.\n").id == "long-tail"
    assert first("It runs out of memory at once.\n").id == "capacity"


def test_a_weak_cause_is_called_a_guess_with_two_facts_that_would_settle_it(vramwise):
    output = vramwise("diagnose", "-", stdin="RuntimeError: CUDA out of memory.\n").output
    assert output.startswith("Out of memory. A guess at the cause: ")
    assert "cause: capacity (possible, a guess, 0.50)" in output
    settle = next(line for line in output.splitlines() if "two facts would settle it" in line)
    assert settle.count("paste") == 2


def test_conditions_are_words_that_circumstances_gives():
    source = "".join(Path(module.__file__).read_text("utf-8") for module in (circumstances, advice))
    stored = bundled_json("remedies.json", circumstances.__file__)
    rows = [row for cause in stored["causes"].values() for row in cause["remedies"] if isinstance(row, dict)]
    used = {
        word for row in (*rows, *stored["changes"].values()) for word in (*row.get("when", ()), *row.get("unless", ()))
    }
    elsewhere = {"longer-batch", "windows", "wsl", *stages(), *said("named"), *TRAINER_NAMES}
    assert [word for word in sorted(used - elsewhere) if f'"{word}"' not in source] == []
