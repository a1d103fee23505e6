"""Small models and runs, drawn at random."""

from hypothesis import strategies as st

from truth import BUNDLED, cases
from vramwise.models.config import model_from_config

RUN = next(case.run for case in cases(BUNDLED) if case.run.adapter.kind == "lora")
SMALL = {
    "hidden_size": 256,
    "n_embd": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "num_hidden_layers": 2,
    "hybrid_override_pattern": "M*",
    "n_layer": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 64,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
SPARSE = ("moe", "mixtral", "gpt_oss", "olmoe")
OPTIMIZERS = [
    "adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_32bit", "adafactor", "lion_8bit", "sgd", "muon",
    "adamw_torch_4bit", "came_pytorch", "galore_adamw", "rmsprop", "ademamix_8bit", "something_new",
]  # fmt: skip


def small_model(model_type, **changes):
    experts = EXPERTS if any(part in model_type for part in SPARSE) else {}
    fields = {"model_type": model_type, **SMALL, **experts, **changes}
    return model_from_config(fields, name=model_type, source="made up")


@st.composite
def runs(draw):
    adapter = draw(st.sampled_from([None, "lora", "qlora"]))
    rows = draw(st.integers(1, 3))
    packed = draw(st.booleans())
    evaluates = draw(st.booleans())
    ranks = draw(st.sampled_from([1, 1, 2, 4]))
    precision = draw(st.sampled_from(["bf16", "fp16", "fp32", "fp8"]))
    return RUN.changed(
        trainer=draw(st.sampled_from(["axolotl", "transformers"])),
        micro_batch_size=rows,
        gradient_accumulation_steps=draw(st.integers(1, 4)),
        sequence_len=draw(st.sampled_from([17, 64, 200])),
        sample_packing=packed,
        packing_rows=draw(st.sampled_from(["one", "micro"])) if packed else "none",
        pad_multiple=draw(st.sampled_from([1, 8, 64])),
        constant_shapes=draw(st.booleans()),
        evaluates=evaluates,
        eval_batch_size=draw(st.integers(1, 4)) if evaluates else None,
        eval_sample_packing=packed and draw(st.booleans()),
        eval_on_start=evaluates and draw(st.booleans()),
        eval_steps=draw(st.sampled_from([None, 1, 0.25])),
        precision=precision,
        weights_dtype=draw(st.sampled_from(["bf16", "fp16", "fp32"])),
        autocast=draw(st.booleans()),
        fp32_embeddings=draw(st.booleans()),
        adapter=adapter,
        lora_r=draw(st.sampled_from([1, 8])) if adapter else None,
        lora_dropout=draw(st.sampled_from([0.0, 0.1])),
        lora_target_linear=draw(st.booleans()),
        lora_target_modules=draw(st.sampled_from([(), ("q_proj", "v_proj"), ("query_key_value",), ("nowhere",)])),
        lora_modules_to_save=draw(st.sampled_from([(), ("embed_tokens", "lm_head"), ("lm_head",), ("nowhere",)])),
        use_dora=draw(st.booleans()),
        quantization=draw(st.sampled_from(["4bit", "8bit", "gptq"])) if adapter else None,
        rl=draw(st.sampled_from([None, "dpo"])),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        max_grad_norm=draw(st.sampled_from([0.0, 1.0])),
        recompute=draw(st.booleans()),
        checkpointing_reentrant=draw(st.booleans()),
        activation_offloading=draw(st.sampled_from(["off", "stream", "legacy", "hidden_states"])),
        layer_offloading=draw(st.booleans()),
        attn_implementation=draw(st.sampled_from(["eager", "sdpa", "flash_attention_2", "flex_attention", "xformers"])),
        loss_kernel=draw(
            st.sampled_from(["stock", "liger_fused_linear", "liger", "cut", "chunked", "dft", "eaft", "dft_whole"])
        ),
        liger=draw(st.sampled_from([(), ("rope", "rms_norm", "glu_activation"), ("layer_norm",)])),
        tiled_mlp=draw(st.booleans()),
        tiled_mlp_pieces=draw(st.sampled_from([None, 1, 3])),
        fused_lora=draw(st.sampled_from([(), ("mlp", "qkv", "o", "embedding"), ("o",)])),
        fused_lora_wide_grads=draw(st.booleans()),
        embeddings_want_grads=draw(st.booleans()),
        expert_masks=draw(st.sampled_from(["none", "ends", "products"])),
        torch_compile=draw(st.booleans()),
        gpus=ranks,
        data_parallel=ranks,
        sharding=draw(st.sampled_from(["none", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"])),
        offload_params=draw(st.booleans()),
        offload_optimizer=draw(st.booleans()),
        tensor_parallel_size=draw(st.sampled_from([1, 1, 2])),
        context_parallel_size=draw(st.sampled_from([1, 1, 2])),
        allocator=draw(st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:32"])),
    )
