"""Failures in Unsloth's own words."""

import pytest

from vramwise.diagnosis.read.texts import find_failures

TEXTS = [
    ("RuntimeError: Unsloth: No or negligible GPU memory available for fused cross entropy.", "cuda-oom"),
    (
        "TypeError: Unsloth: Model is in bfloat16 precision but you want to use float16 precision. Set fp16 to `False` "
        "and bf16 to `True`",
        "mixed-operands",
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
