"""Odd values under the keys that axes look at: what is offered has words, or none; nothing breaks."""

from itertools import product

import pytest
import varied

from vramwise.errors import VramwiseError
from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.variants.axes import ALLOW, opened

ODD = (
    *("null", "''", "0", "-1", "1.5", ".inf", ".nan", "'8'", "9" * 30, "[]", "{}", "[null, 1]", "{a: 1}"),
    *("x", "offload", "true", "false"),
)
KEYS = (
    *("micro_batch_size", "gradient_accumulation_steps", "batch_size", "eval_batch_size", "sequence_len", "lora_r"),
    *("eval_sequence_len", "lora_alpha", "lora_target_modules", "adapter", "optimizer", "plugins", "deepspeed"),
    *("fsdp_config", "fsdp", "gradient_checkpointing", "activation_offloading", "attn_implementation", "liger_rope"),
    *("lora_mlp_kernel", "pad_to_multiple_of", "pad_to_sequence_len", "tokens", "selective_checkpointing", "fp8"),
    *("load_in_8bit", "gradient_checkpointing_kwargs", "liger_fused_linear_cross_entropy", "base_model"),
)
BASE = "base_model: meta-llama/Llama-3.2-1B\nval_set_size: 0.1\n"


@pytest.mark.parametrize("key", KEYS)
def test_odd_values_end_in_choices_or_a_sentence(key):
    for value, base in product(ODD, (BASE, BASE + "adapter: lora\nlora_r: 8\nlora_alpha: 16\n")):
        kept = [line for line in base.splitlines() if not line.startswith(f"{key}:")]
        try:
            subject = varied.subject("\n".join([*kept, f"{key}: {value}"]) + "\n", gpus=2)
        except VramwiseError:
            continue
        for axis in opened(ALLOW):
            for change in axis.choices(subject.run):
                spelling = subject.trainer.spell(subject.run, change)
                assert spelling is None or spelling.edits or spelling.command, (value, change.id)


@pytest.mark.parametrize("version", ["1.14.0", "1.16.0"])
def test_rows_of_one_token_have_a_size_and_a_time(version):
    """Their losses are of no rows at all."""
    text = "model_name_or_path: HuggingFaceTB/SmolLM2-135M\ndataset_name: x/y\nmax_length: 1\noutput_dir: out\n"
    subject = open_subject(Text(text), Options(gpu="rtx-4090", trainer="trl:sft", versions=(f"trl=={version}",)))
    assert subject.prediction().fits
    assert subject.speed().step_seconds > 0


def test_a_run_that_trains_nothing_is_one_sentence():
    text = "base_model: HuggingFaceTB/SmolLM2-135M\nadapter: eager\nunfrozen_parameters: [^lm_head.weight$]\n"
    subject = open_subject(Text(text), Options(gpu="rtx-4090", trainer="transformers"))
    with pytest.raises(VramwiseError, match="no parameter is trained"):
        subject.prediction()
