"""Any run of any family goes through: a timeline and a report, or an error in the product's own words."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightly import examples
from truth import BUNDLED, cases
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.facts.model_config import model_from_config
from vramwise.families import all_model_types
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import Action

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
CARDS = [None, "h200", "a100", "rtx-4090", "rtx-3090", "t4", "v100", "b200", "mi300x", "24GB"]


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


def goes_through(run, model, **options):
    """A timeline in which nothing is freed twice or never made, and a report of it; or a VramwiseError."""
    try:
        timeline, _said = ghost_run(run, model, steps=2, **options)
    except VramwiseError:
        return
    live = set()
    for event in timeline.events:
        if event.action == Action.ALLOC:
            assert event.tensor not in live
            assert event.size_bytes > 0
            live.add(event.tensor)
        elif event.action == Action.FREE:
            live.remove(event.tensor)
    report = simulate(timeline, parse_settings(run.allocator.settings, run.target.torch), torch=run.target.torch)
    assert 0 < report.peak_allocated_bytes <= report.peak_reserved_bytes
    assert sum(report.breakdown_bytes.values()) <= report.peak_allocated_bytes


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    run=runs(),
    model_type=st.sampled_from(sorted(all_model_types())),
    tied=st.booleans(),
    kv=st.sampled_from([1, 2, 4]),
    card=st.sampled_from(CARDS),
    own=st.booleans(),
    widths=st.none() | st.lists(st.integers(1, 90), min_size=1, max_size=5),
)
def test_any_run_goes_through(run, model_type, tied, kv, card, own, widths):
    model = small_model(model_type, tie_word_embeddings=tied, num_key_value_heads=kv, num_kv_heads=kv)
    gpu = None if card is None else find_gpu(card)
    run = run.changed(fsdp_one_root=own, fsdp_adapters_apart=own, liger_before_build=own)
    goes_through(run, model, widths=widths, eval_widths=widths, gpu=gpu)


@pytest.mark.parametrize("model_type", sorted(all_model_types()))
@pytest.mark.parametrize("adapter", [None, "lora"])
def test_every_model_type_trains(model_type, adapter):
    timeline, _ = ghost_run(RUN.changed(adapter=adapter, sequence_len=64), small_model(model_type), steps=2)
    assert {phase.name for phase in timeline.phases} >= {"load", "forward", "loss", "backward", "clip", "optimizer"}
