"""4-bit checkpoints with 16-bit layers: a range, whoever trains them."""

import pytest

from vramwise.api import predict
from vramwise.models.names import MORE_WEIGHTS, is_wide

QLORA = """
adapter: qlora
load_in_4bit: true
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 1
"""
TRL = "max_length: 1024\nload_in_4bit: true\nuse_peft: true\n"


@pytest.mark.parametrize(("key", "rest"), [("base_model", QLORA), ("model_name_or_path", TRL)])
def test_layers_in_16_bits_may_add_a_quarter_of_the_weights(key, rest):
    trainer = "axolotl" if key == "base_model" else "trl"
    plain = predict(f"{key}: Qwen/Qwen3-14B\n{rest}", gpu="rtx-4090", trainer=trainer).prediction
    dynamic = predict(f"{key}: unsloth/Qwen3-14B-unsloth-bnb-4bit\n{rest}", gpu="rtx-4090", trainer=trainer).prediction
    assert plain.bounds is None
    assert dynamic.bounds.names == ("dynamic 4-bit checkpoint",)
    assert dynamic.bounds.lower_bytes == dynamic.needs.highest_reserved_bytes
    more = dynamic.bounds.upper_bytes - dynamic.bounds.lower_bytes
    assert more == pytest.approx(MORE_WEIGHTS * dynamic.needs.breakdown_bytes["weights"], abs=1)


def test_only_the_families_that_were_measured_take_much_more():
    assert is_wide("unsloth/gemma-3-27b-it-unsloth-bnb-4bit")
    assert not is_wide("unsloth/Llama-3.1-8B-unsloth-bnb-4bit")
    assert not is_wide("Qwen/Qwen3-14B")
    assert not is_wide(None)
