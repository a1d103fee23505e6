"""How choices of a search are written into an Axolotl file: the lines a person would write, comments kept."""

import pytest

from opened import make_target, subject_of_text
from vramwise.documents.edit import apply_edits
from vramwise.variants.axes import ALLOW, opened

BASE = "base_model: meta-llama/Llama-3.2-1B\n"
LORA = "adapter: lora\nlora_r: 16\nlora_alpha: 32\n"
LIGER = "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"


def written(text: str, change_id: str, *, number: int = 0, gpus: int = 1) -> tuple[str, str]:
    """What the file is with a choice, less the line of the base model, and the command that goes with it."""
    subject = subject_of_text(BASE + text, make_target(gpu="h100", gpus=gpus))
    offered = [change for axis in opened(ALLOW) for change in axis.choices(subject.run) if change.id == change_id]
    spelling = subject.trainer.spell(subject.run, offered[number])
    return apply_edits(subject.document, spelling.edits).text.removeprefix(BASE), spelling.command


@pytest.mark.parametrize(
    ("text", "change", "wanted"),
    [
        (
            "micro_batch_size: 2 # rows\ngradient_accumulation_steps: 3\n",
            "larger-micro-batch",
            "micro_batch_size: 6 # rows\ngradient_accumulation_steps: 1\n",
        ),
        ("gradient_checkpointing: true # slow\n", "keep-activations", "gradient_checkpointing: false # slow\n"),
        ("gradient_checkpointing: offload\n", "checkpoint-activations", "gradient_checkpointing: true\n"),
        (
            "gradient_checkpointing: offload\n",
            "offload-layer-inputs",
            "gradient_checkpointing: true\nactivation_offloading: hidden_states\n",
        ),
        (
            "gradient_checkpointing: true\nactivation_offloading: true\n",
            "checkpoint-activations",
            "gradient_checkpointing: true\nactivation_offloading: false\n",
        ),
        (LIGER + "liger_fused_linear_cross_entropy: true # small\n", "chunk-loss", LIGER + "chunked_cross_entropy: true # small\n"),
        ("chunked_cross_entropy: true\n", "plain-loss", ""),
        (LIGER + "liger_rope: true # fast\n", "no-liger-kernels", LIGER + "liger_rope: false # fast\n"),
        (
            "plugins:\n  - some.other.Plugin\n",
            "liger-kernels",
            "plugins:\n  - some.other.Plugin\n  - axolotl.integrations.liger.LigerPlugin\n"
            "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n",
        ),
        (
            LORA,
            "no-lora-kernels",
            "adapter: lora\nlora_mlp_kernel: false\nlora_qkv_kernel: false\nlora_o_kernel: false\nlora_r: 16\nlora_alpha: 32\n",
        ),
        (
            LORA + "lora_mlp_kernel: false # broken once\n",
            "lora-kernels",
            "adapter: lora\nlora_qkv_kernel: true\nlora_o_kernel: true\nlora_r: 16\nlora_alpha: 32\nlora_mlp_kernel: true # broken once\n",
        ),
        (LORA, "lower-rank", "adapter: lora\nlora_r: 8\nlora_alpha: 16\n"),
        (LORA, "quantize-base", "adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n"),
        (
            "load_in_8bit: true # enough\n" + LORA,
            "quantize-base",
            "load_in_8bit: false # enough\nload_in_4bit: true\nadapter: qlora\nlora_r: 16\nlora_alpha: 32\n",
        ),
        ("", "train-adapter", "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"),
        ("sequence_len: 2048\npad_to_sequence_len: true\n", "trim-rows", "sequence_len: 2048\n"),
        ("optimizer: adamw_torch # why not\n", "fused-optimizer", "optimizer: adamw_torch_fused # why not\n"),
        (
            LORA + "sdp_attention: true\nsequence_len: 512\n",
            "pack-samples",
            LORA + "attn_implementation: sdpa\nsequence_len: 512\nsample_packing: true\n",
        ),
    ],
)  # fmt: skip
def test_a_choice_is_written_as_a_person_would(text, change, wanted):
    assert written(text, change)[0] == wanted


def test_zero_names_the_file_that_axolotl_brings_and_how_it_comes():
    assert written("", "shard-with-zero", number=2, gpus=2) == (
        "deepspeed: deepspeed_configs/zero3.json\n",
        "axolotl fetch deepspeed_configs",
    )
    assert written("deepspeed: ds/zero1.json # first\n", "shard-with-zero", gpus=2) == (
        "deepspeed: ds/zero2.json # first\n",
        "",
    )


def test_fsdp_takes_the_place_of_zero():
    text, _ = written("deepspeed: ds/zero1.json\n", "shard-with-fsdp", gpus=2)
    assert text.startswith("fsdp_version: 2\nfsdp_config:\n")
    assert "deepspeed" not in text


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("batch_size: 4\nmicro_batch_size: 2\n", "smaller-micro-batch"),  # accumulation beside batch_size is refused
        ("gradient_checkpointing: true\nselective_checkpointing: true\n", "keep-activations"),
        ("plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\ncut_cross_entropy: false\n", "chunk-loss"),
        (LORA + "trust_remote_code: true\n", "lora-kernels"),
        ("qat:\n  weight_dtype: int4\n", "train-adapter"),
        (LORA + "nvfp4_merge_aware: true\n", "quantize-base"),
    ],
)  # fmt: skip
def test_what_a_key_of_the_file_stands_against_has_no_words(text, change):
    subject = subject_of_text(BASE + text, make_target(gpu="h100"))
    offered = [one for axis in opened(ALLOW) for one in axis.choices(subject.run) if one.id == change]
    assert offered
    assert [subject.trainer.spell(subject.run, one) for one in offered] == [None] * len(offered)
