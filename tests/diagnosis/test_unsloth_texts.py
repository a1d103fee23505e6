"""Failures in Unsloth's own words."""

import pytest

from vramwise.diagnosis.read.reported import find_failures

TEXTS = [
    ("RuntimeError: Unsloth: No or negligible GPU memory available for fused cross entropy.", "cuda-oom"),
    (
        "TypeError: Unsloth: Model is in bfloat16 precision but you want to use float16 precision. Set fp16 to `False` "
        "and bf16 to `True`",
        "mixed-operands",
    ),
    (
        "ValueError: Unsloth: unsloth/Qwen3-32B does not fit in GPU memory (14.5 GiB free), so transformers placed part of "
        "it on the CPU, which bitsandbytes cannot quantize.",
        "does-not-fit",
    ),
    (
        "unsloth_zoo.device_map_planner.DeviceMapInfeasible: Cannot place the model and keep 1.250 GiB free on the output "
        "head's device.",
        "does-not-fit",
    ),
    (
        "unsloth_zoo.device_map_planner.DeviceMapInfeasible: Even with 40 of 64 decoder layers in host RAM the model does "
        "not fit while keeping 2.00 GiB free for training on cuda:0 (14.50 GiB free).",
        "does-not-fit",
    ),
    ("MemoryError: Unsloth: Your GPU ran out of memory loading vLLM with standby mode enabled.", "vllm-cumem"),
    (
        "Unsloth: Your GPU cannot handle sequence lengths of 8192 due to limited GPU memory.",
        "vllm-cache",
    ),
]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
def test_a_text_is_known(text, kind):
    assert next(iter(find_failures(text))).kind == kind


def test_both_types_are_read():
    [found] = find_failures(TEXTS[1][0])
    assert found.details == {"left": "bfloat16", "right": "float16"}


def test_the_trainer_is_known_by_its_frames(vramwise, tmp_path):
    log = tmp_path / "run.log"
    log.write_text(
        "Unsloth 2026.10.9: Fast Llama patching\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/site-packages/unsloth/models/llama.py", line 1063, in LlamaAttention_fast_forward\n'
        "    Q, K, V = self.apply_qkv(self, hidden_states)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of "
        "14.74 GiB of which 20.12 MiB is free. Of the allocated memory 14.20 GiB is allocated by PyTorch, and 100.00 "
        "MiB is reserved by PyTorch but unallocated.\n"
    )
    result = vramwise("diagnose", str(log))
    assert "use_gradient_checkpointing" in result.stdout or "per_device_train_batch_size" in result.stdout
