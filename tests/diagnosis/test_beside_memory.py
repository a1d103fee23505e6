"""Failures that have nothing to do with memory are named and said to be that; what nobody knows is not claimed."""

import io
import json

import pytest

import vramwise
from failure_logs import lines, oom, traceback
from vramwise.bundled import bundled_json
from vramwise.diagnosis import advice
from vramwise.diagnosis.causes import not_memory

CASES = [
    ("ValueError: The model did not return a loss from the inputs, only the following keys: logits.", "missing-loss"),
    ("RuntimeError: CUDA error: device-side assert triggered", "index-out-of-range"),
    ("OSError: [Errno 28] No space left on device", "disk-full"),
    ("SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull })", "disk-full"),
    ("OSError: You are trying to access a gated repo.", "no-access"),
    ("ConnectionError: (MaxRetryError: Max retries exceeded with url: /acme/model)", "network"),
    ("PermissionError: [Errno 13] Permission denied: '/data/out'", "no-permission"),
    ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled system error", "collective"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda-fault"),
    ("RuntimeError: No CUDA GPUs are available", "no-gpu"),
    ("RuntimeError: FP8 attention requires compute capability 9.0", "card-too-old"),
    ("TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'", "version-mismatch"),
    ("ModuleNotFoundError: No module named 'flash_attn'", "missing-package"),
    ("ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDevice", "broken-library"),
    ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", "no-gradient"),
    ("RuntimeError: Trying to backward through the graph a second time", "backward-twice"),
    ("NotImplementedError: Cannot copy out of meta tensor; no data!", "meta-tensor"),
    ("ValueError: model type `qwen9` but Transformers does not recognize this architecture.", "unknown-architecture"),
    ("ValueError: Asking to pad but the tokenizer does not have a padding token.", "chat-template"),
    ("ValueError: Image features and image tokens do not match: tokens: 3, features 5", "image-tokens"),
    ("DatasetGenerationError: An error occurred while generating the dataset", "bad-data"),
    ("RuntimeError: shape '[1, 2]' is invalid for input of size 3", "shape-mismatch"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'train.json'", "missing-file"),
    ("KeyboardInterrupt", "interrupted"),
    ("torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with one_graph=True", "recompile-limit"),
    ("train.py: error: unrecognized arguments: --lora_rank 8", "refused-setting"),
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***", "interrupted"),
    ("ZeroDivisionError: division by zero", "code-error"),
]


def diagnose(text):
    return vramwise.diagnose(io.BytesIO(text.encode()))


@pytest.mark.parametrize(("text", "cause"), CASES)
def test_a_failure_beside_memory_is_named(text, cause):
    found = diagnose(lines(traceback(("train.py", "main")), text) if text[0].isupper() else lines(text))
    assert found.verdict == "diagnosed"
    assert [one.id for one in found.causes] == [cause]
    assert "not a memory failure" in found.sentence
    assert found.causes[0].remedies
    assert not any("record a snapshot" in step for step in found.next_steps)


def test_a_message_on_the_next_line_counts():
    found = diagnose("ValueError:\n  The model did not return a loss from the inputs\n")
    assert found.causes[0].id == "missing-loss"


@pytest.mark.parametrize("text", ["RuntimeError: part 7 is odd", "AssertionError: memory pool is inconsistent"])
def test_what_is_not_known_is_not_claimed(text):
    found = diagnose(lines(traceback(("train.py", "main")), text))
    assert found.verdict == "unexplained"
    assert "not a memory failure" not in found.sentence


def test_an_out_of_memory_beside_another_error_is_the_failure():
    log = lines("torch.distributed.DistBackendError: NCCL error: unhandled cuda error", oom("448.00 MiB"))
    assert diagnose(log).symptom.kind == "cuda-oom"


def test_the_processes_ended_by_a_launcher_are_no_interruption():
    assert diagnose("Sending process 123 closing signal SIGTERM\n").verdict == "unexplained"


def test_a_crash_of_compiled_code_claims_nothing_about_memory():
    found = diagnose("  exitcode  : -11 (pid: 4321)\n")
    assert found.causes[0].id == "native-crash"
    assert "not a memory failure" not in found.sentence


def test_every_named_failure_has_advice():
    named = {row["cause"] for row in bundled_json("not_memory.json", not_memory.__file__)} | {"code-error"}
    assert [cause for cause in sorted(named) if not advice.rows_for(cause)] == []


def test_the_command_says_it_first(vramwise):
    result = vramwise("diagnose", "-", "--format", "json", stdin=f"{CASES[0][0]}\n")
    assert result.exit_code == 1
    assert json.loads(result.output)["sentence"].endswith("This is not a memory failure.")
