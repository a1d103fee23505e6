"""What an axis offers to which run: nothing that would change the training under another name, nothing that is not there."""

import pytest
import varied

from vramwise.variants.axes import AXES

LORA, SMALL = varied.LORA, varied.SMALL
FLASH = ("flash-attn==2.8.3",)
GEMMA_2 = SMALL.replace("meta-llama/Llama-3.2-1B", "google/gemma-2-2b")


def offered(axis: str, field: str, text: str, **words) -> list:
    """The values that the axes of a name, open by default, offer for a field."""
    run = varied.subject(text, **words).run
    found = [one for one in AXES if one.name == axis and not one.allow]
    return [change.fields[field] for one in found for change in one.choices(run)]


@pytest.mark.parametrize(
    ("text", "words", "wanted"),
    [
        (LORA, {}, []),  # nothing says that FlashAttention is there
        (LORA, {"extra": FLASH}, ["flash_attention_2"]),
        (LORA, {"extra": FLASH, "gpu": "t4"}, []),
        (LORA + "bf16: false\n", {"extra": FLASH}, []),  # fp32 weights
        (LORA + "attn_implementation: flash_attention_2\n", {}, ["sdpa"]),
        (LORA + "attn_implementation: eager\n", {}, ["sdpa"]),
        (LORA + "attn_implementation: flex_attention\n", {}, []),
        (LORA + "attn_implementation: flash_attention_2\nsample_packing: true\n", {}, []),
        # a full fine-tune's embeddings change their type with FlashAttention
        ("", {"extra": FLASH}, []),
        ("attn_implementation: flash_attention_2\n", {}, []),
        ("attn_implementation: eager\n", {"extra": FLASH}, ["sdpa"]),
        ("attn_implementation: flash_attention_2\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\n", {"gpus": 2}, ["sdpa"]),
    ],
)  # fmt: skip
def test_attention(text, words, wanted):
    assert offered("attention", "attn_implementation", SMALL + text, **words) == wanted


def test_a_soft_cap_is_not_left_out():
    assert offered("attention", "attn_implementation", GEMMA_2 + LORA + "attn_implementation: eager\n") == []
    text = GEMMA_2 + LORA + "attn_implementation: eager\n"
    assert offered("attention", "attn_implementation", text, extra=FLASH) == ["flash_attention_2"]


@pytest.mark.parametrize(
    ("text", "words", "wanted"),
    [
        ("", {}, ["adamw_torch"]),  # bitsandbytes would keep fp32 states of bf16 weights
        ("bf16: false\n", {}, ["adamw_torch", "paged_adamw_32bit"]),
        (LORA, {}, ["adamw_torch", "paged_adamw_32bit"]),
        (LORA, {"gpu": "mi300x"}, ["adamw_torch"]),
        (LORA + "optimizer: paged_adamw_32bit\n", {}, ["adamw_torch_fused", "adamw_torch"]),
        (LORA + "optimizer: adamw_8bit\n", {}, ["paged_adamw_8bit"]),
        (LORA + "optimizer: lion_8bit\n", {}, []),
        ("deepspeed: zero2.json\n", {"gpus": 2}, []),  # its states are on the host
    ],
)
def test_optimizers_with_states_of_the_same_type(text, words, wanted):
    assert offered("optimizer", "optimizer", SMALL + text, **words) == wanted


@pytest.mark.parametrize(
    ("text", "words", "wanted"),
    [
        ("", {}, {"checkpoint-activations", "offload-activations", "offload-layer-inputs"}),
        ("rl: dpo\n", {}, {"checkpoint-activations"}),
        ("torch_compile: true\n", {}, {"checkpoint-activations"}),
        ("fsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n", {"gpus": 2}, set()),
        ("gradient_checkpointing: true\nactivation_offloading: legacy\n", {},
         {"keep-activations", "checkpoint-activations", "offload-activations", "offload-layer-inputs"}),
    ],
)  # fmt: skip
def test_checkpointing_and_offloading(text, words, wanted):
    run = varied.subject(SMALL + text, **words).run
    axis = next(axis for axis in AXES if axis.name == "checkpointing")
    assert {change.id for change in axis.choices(run)} == wanted


def test_losses_of_their_own_stay():
    assert offered("loss", "loss_kernel", SMALL) == ["liger_fused_linear", "chunked"]
    assert offered("loss", "loss_kernel", SMALL + "use_eaft: true\n") == []
    assert offered("loss", "loss_kernel", SMALL + LORA + "rl: dpo\n") == []
    unknown = SMALL.replace("meta-llama/Llama-3.2-1B", "EleutherAI/pythia-1b")
    assert offered("loss", "loss_kernel", unknown) == ["chunked"]


def test_liger_has_no_mlp_for_experts():
    assert offered("liger", "liger", varied.MIXTURE) == [("rope", "rms_norm")]


def test_experts_are_quantised_only_where_the_base_is():
    targets = "lora_r: 8\nlora_alpha: 16\nlora_target_modules: [q_proj]\n"
    quantised = varied.MIXTURE + "adapter: qlora\nload_in_4bit: true\n" + targets
    assert offered("experts", "expert_quantization", quantised) == ["4bit"]
    assert offered("experts", "expert_quantization", varied.MIXTURE + "adapter: lora\n" + targets) == []
    assert offered("experts", "expert_quantization", quantised.replace("Qwen3-30B-A3B", "Qwen3-8B")) == []


def test_the_micro_batch_of_a_layerwise_optimizer_stays():
    text = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 4\noptimizer: galore_adamw_layerwise\n"
    assert offered("batches", "micro_batch_size", text) == []


def test_absurd_batches_are_counted_in_no_time():
    text = SMALL.replace("gradient_accumulation_steps: 6", f"gradient_accumulation_steps: {2**40}")
    assert len(offered("batches", "micro_batch_size", text)) == 16
