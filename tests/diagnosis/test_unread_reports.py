"""Kinds of reports that were answered wrongly, or not at all, when they were first read."""

import io

import pytest

import vramwise

NCCL_SHM = """box:10:20 [1] include/alloc.h:65 NCCL WARN Cuda failure 2 'out of memory'
box:10:20 [1] NCCL INFO transport/shm.cc:500 -> 1
"""
PINNED = """Traceback (most recent call last):
  File "/x/deepspeed/accelerator/cuda_accelerator.py", line 9, in pin_memory
    return tensor.cpu().pin_memory()
RuntimeError: CUDA error: invalid argument
"""
MAPPING = """[W1] expandable_segments: memory mapping failed with OOM on device 0 while trying to map 20971520 bytes (free: 15663104, total: 33671348224).
RuntimeError: aoti_torch_empty_strided(3, a, b, c, d, 0, &e) API call failed at /tmp/main.cpp, line 3
"""
OLD_FREE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 23.99 GiB total capacity; "
    "4.00 GiB already allocated; 18.00 GiB free; 4.10 GiB reserved in total by PyTorch)\n"
)


def diagnose(text):
    return vramwise.diagnose(io.BytesIO(text.encode()))


@pytest.mark.parametrize(
    ("text", "cause", "says"),
    [
        (NCCL_SHM, "host-shared-memory", "pin host memory"),
        (PINNED, "host-memory", "could not pin"),
        (MAPPING, "capacity", "Out of memory"),
        (OLD_FREE, "not-a-shortage", "18.0 GiB of the card were free"),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n", "stopped", "SIGTERM"),
        ("[1] [INFO] [launch.py:3:sigkill_handler] Killing subprocess 10\n", "host-memory", "guess"),
        ("W0 torch/_dynamo/x.py:9] [0/8] torch._dynamo hit config.recompile_limit (8)\n", "recompile-limit", "recompiled"),
        ("UserWarning: flex_attention called without torch.compile() - slow\n", "eager-attention", "flex_attention"),
        ("x's\n watchdog got stuck for 480 seconds without making progress\n", "nccl-timeout", "timed out"),
        ("# RuntimeError: expected scalar type Half but found Float, why?\n\nno idea\n", "mixed-operands", "Half and Float"),
        ("# Training was killed\n\nThere was only 'exits with return code = -11'.\n", "native-crash", "Nothing says"),
        ("# Memory leaks\n\nGPU memory keeps increasing at each step.\n", "long-tail", "Memory grows"),
        ("ValueError: The requested device for vllm (cuda:1) is not available.\n", "vllm-device", "second card"),
        ("LoRA of Llama-3-70B on 2x A100 80GB is out of memory\n", "capacity", "the weights take at least"),
    ],
)  # fmt: skip
def test_what_the_text_shows_decides(text, cause, says):
    found = diagnose(text)
    assert (found.causes[0].id, says in found.sentence) == (cause, True), found.sentence


def test_weights_that_fill_the_card_are_not_answered_with_activations():
    titles = " ".join(
        one.title for one in diagnose("LoRA of Llama-3-70B on 2x A100 80GB is out of memory\n").causes[0].remedies
    )
    assert "4 bits" in titles
    assert "micro-batch" not in titles
    assert "checkpointing" not in titles


def test_a_warning_in_a_run_that_goes_on_is_no_failure():
    bars = "".join(f"{n}/9 [00:0{n}<00:09, 1.0s/it]\n" for n in range(1, 5))
    text = f"torch._dynamo hit config.recompile_limit (8)\n{bars}{{'train_runtime': 9.0}}\n"
    assert diagnose(text).verdict == "no-failure"


def test_an_unknown_exception_is_not_said_to_be_no_memory_failure():
    found = diagnose("my.lib.StrangeError: it went wrong\n")
    assert found.verdict == "unexplained"
    assert not any("not a memory failure" in step for step in found.next_steps)


def test_weights_that_let_steps_pass_did_fit():
    said = diagnose("LoRA of Llama-3-70B on 2x A100 80GB is out of memory at step 300\n")
    assert "weights alone" not in said.sentence
