"""Tensor and context parallelism: a lower bound, and no verdict that nobody has measured."""

import pytest

from opened import make_target
from vramwise.documents.document import parse_document
from vramwise.opening.subject import on_target
from vramwise.trainers.registry import trainer_named

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 512
micro_batch_size: 1
bf16: true
attn_implementation: flash_attention_2
"""


@pytest.mark.parametrize("key", ["tensor_parallel_size", "context_parallel_size"])
def test_what_ranks_exchange_is_not_followed(key):
    document = parse_document("config.yml", f"{CONFIG}{key}: 2\n".encode())
    prediction = on_target(document, trainer_named("axolotl"), make_target(gpu="h100", gpus=4)).prediction()
    assert prediction.bounds.names == (f"{key.split('_')[0]} parallelism",)
    assert prediction.bounds.upper_bytes is None
    assert prediction.verdict().kind == "not_known"
    assert 0 < prediction.bounds.lower_bytes < prediction.needs.highest_reserved_bytes
