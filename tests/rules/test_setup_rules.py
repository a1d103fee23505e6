"""Edges of the rules about optimizer, checkpointing, attention, loss and sharding: where they speak, and where not."""

import pytest

from opened import check_document, make_target
from vramwise import explain
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits

CUT = "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
LIGER = "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
BOTH = CUT + "  - axolotl.integrations.liger.LigerPlugin\n"
FSDP2 = "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
FSDP1 = "fsdp_config:\n  reshard_after_forward: true\n"
STRIDED = "rl: ebft\nebft:\n  mode: strided\nattn_implementation: flex_attention\n"
QLORA = "adapter: qlora\nload_in_4bit: true\ngradient_checkpointing: true\n"
NON_REENTRANT = "gradient_checkpointing_kwargs:\n  use_reentrant: false\n"
REENTRANT = "gradient_checkpointing_kwargs:\n  use_reentrant: true\n"
ZERO3 = "deepspeed: deepspeed_configs/zero3_bf16.json\n"
COLOCATE = "rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\n"
T4, A100, H100, TWO = {"gpu": "t4"}, {"gpu": "a100-80gb"}, {"gpu": "h100"}, {"gpus": 2}
# Axolotl 0.19, the last with FSDP1, and 0.20.
OLD, OLD_TWO = {"versions": ("axolotl==0.19.0",)}, {"gpus": 2, "versions": ("axolotl==0.19.0",)}
V20 = {"versions": ("axolotl==0.20.0",)}


def judge(rule_id, text, options=None):
    rule = explain(rule_id)
    target = make_target(env={}, look_around=False, **(options or {}))
    document = parse_document("config.yml", text.encode())
    return document, list(check_document(document, target, [rule]).findings)


def severities(rule_id, text, options=None):
    return [found.severity.value for found in judge(rule_id, text, options)[1]]


def fixed(rule_id, text, options=None):
    document, findings = judge(rule_id, text, options)
    for found in findings:
        document = apply_edits(document, found.fix.edits)
    return document.values


@pytest.mark.parametrize(
    ("rule_id", "text", "options", "expected"),
    [
        # optimizers
        ("unknown-optimizer", "sequence_len: 512\n", {}, []),
        ("unknown-optimizer", "optimizer:\nsequence_len: 512\n", {}, ["error"]),
        ("unknown-optimizer", "optimizer: adamw_torch_4bit\n", {}, []),
        ("adam-settings-without-adam", "optimizer: lion_8bit\nadam_beta1: 0.9\nadam_epsilon: 1e-8\n", {}, ["info", "warning"]),
        ("adam-settings-without-adam", "optimizer: galore_adamw\nadam_beta2: 0.95\n", {}, ["warning"]),
        ("adam-settings-without-adam", "adam_beta2: 0.95\n", {}, []),
        ("adam-settings-without-adam", "optimizer: no_such\nadam_beta2: 0.95\n", {}, []),
        ("muon-sharding-unsupported", f"optimizer: muon\n{ZERO3}", TWO, ["error"]),
        ("muon-sharding-unsupported", "optimizer: muon\n", TWO, []),
        ("flash-optimizer-sharding-unsupported", f"optimizer: adamw_torch\n{FSDP1}", TWO, []),
        ("qgalore-misused", "optimizer: q_galore_adamw8bit\nadapter: lora\nbf16: false\n", {}, ["error", "warning"]),
        ("polora-misused", "optimizer: polora\nadapter: lora\nweight_decay: 0.1\n", {}, ["warning"]),
        ("optimizer-torch-too-old", "optimizer: adopt_adamw\n", {"torch": "2.5"}, []),
        ("galore-without-targets", "optimizer: q_galore_adamw8bit\n", {}, []),  # Axolotl fills its own default in
        ("layerwise-optimizer-unsupported", "optimizer: galore_adamw\ngradient_accumulation_steps: 4\n", TWO, []),
        ("layerwise-optimizer-unsupported", "optimizer: apollo_adamw_layerwise\n", TWO, ["error"]),
        ("fsdp2-8bit-optimizer", f"optimizer: paged_adamw_8bit\n{FSDP2}", TWO, ["warning"]),
        ("fsdp2-8bit-optimizer", f"optimizer: adamw_8bit\n{FSDP1}", OLD_TWO, []),
        ("fsdp2-8bit-optimizer", f"optimizer: adamw_8bit\n{FSDP1}", TWO, ["error"]),
        ("fsdp-offload-8bit-optimizer", f"optimizer: adamw_8bit\n{FSDP1}", TWO, []),
        ("fsdp-offload-8bit-optimizer", "optimizer: adamw_torch_8bit\nfsdp_config:\n  offload_params: true\n", TWO, []),
        ("flash-optimizer-sharding-unsupported", f"optimizer: flash_adamw\n{FSDP1}", TWO, []),
        ("muon-sharding-unsupported", f"optimizer: muon_8bit\n{ZERO3}", TWO, ["error"]),
        ("qgalore-misused", f"optimizer: q_galore_adamw8bit\n{FSDP2}", TWO, []),
        ("unknown-optimizer", "optimizer: muon_8bit\n", {}, []),
        ("unknown-optimizer", "optimizer: muon_8bit\n", OLD, ["error"]),
        ("unknown-optimizer", "optimizer: scao\n", V20, []),
        ("tensor-parallel-8bit-optimizer", "optimizer: adamw_8bit\n", TWO, []),
        ("tensor-parallel-8bit-optimizer", "optimizer: adamw_8bit\ntensor_parallel_size: 2\n", TWO, ["error"]),
        ("tensor-parallel-8bit-optimizer", "optimizer: adamw_8bit\ntensor_parallel_size: 2\n", OLD_TWO, ["warning"]),
        ("tensor-parallel-8bit-optimizer", "optimizer: lion_8bit\ntensor_parallel_size: 2\n", TWO, ["warning"]),
        # checkpointing and offloading
        ("checkpointing-unset", "gradient_checkpointing: false\n", {}, []),
        ("checkpointing-unset", "gradient_checkpointing:\n", {}, []),
        ("checkpointing-unset", "activation_offloading: true\n", {}, []),
        ("checkpointing-unset", "fsdp_config:\n  fsdp_activation_checkpointing: true\n", TWO, []),
        ("offloading-without-checkpointing", "activation_offloading: false\n", {}, []),
        ("offloading-without-checkpointing", "gradient_checkpointing: offload\n", {}, []),
        ("disk-offload-not-disk", "gradient_checkpointing: offload_disk\n", {}, ["warning"]),
        ("offloading-of-recomputed", "gradient_checkpointing: true\nactivation_offloading: true\n", {}, []),
        ("offloading-of-recomputed", "adapter: lora\ngradient_checkpointing: offload\n", {}, []),  # 0.21: not reentrant
        ("offloading-of-recomputed", "adapter: lora\ngradient_checkpointing: offload\n", V20, ["info"]),
        ("offloading-of-recomputed", "adapter: lora\ngradient_checkpointing: true\nactivation_offloading: legacy\n", {}, ["info"]),
        ("selective-checkpointing-misused", "selective_checkpointing: false\n", {}, []),
        ("selective-checkpointing-misused", f"selective_checkpointing: true\ngradient_checkpointing: true\n{REENTRANT}", {}, ["error"]),
        ("hidden-states-offloading-misused", "adapter: lora\ngradient_checkpointing: true\nactivation_offloading: hidden_states\n", {}, []),
        ("reentrant-partly-frozen", f"unfrozen_parameters:\n  - lm_head\n{NON_REENTRANT}", {}, []),
        ("reentrant-rl-qlora", f"rl: dpo\n{QLORA}{REENTRANT}", {}, []),  # one GPU
        ("nonreentrant-qlora-zero3", f"{QLORA}{NON_REENTRANT}{ZERO3}", TWO, ["warning"]),
        ("nonreentrant-qlora-zero3", f"{QLORA}{ZERO3}", TWO, []),  # reentrant by default
        ("nonreentrant-qlora-zero3", f"rl: dpo\n{QLORA}{ZERO3}", TWO, ["warning"]),  # but not in RL
        ("nonreentrant-qlora-zero3", f"{QLORA}{NON_REENTRANT}deepspeed: x/zero2.json\n", TWO, []),
        ("ebft-compile-checkpointing", f"{STRIDED}torch_compile: true\n", {}, ["warning"]),
        ("ebft-compile-checkpointing", f"{STRIDED}gradient_checkpointing: true\n", {}, ["info"]),
        ("ebft-compile-checkpointing", f"{STRIDED}gradient_checkpointing: true\n{NON_REENTRANT}", {}, ["warning"]),
        ("torch-compile-options-misused", "torch_compile: auto\ntorch_compile_options:\n  shape_padding: true\n", {"torch": "2.4", **OLD}, ["warning"]),
        ("torch-compile-options-misused", "torch_compile: true\ntorch_compile_options:\n  triton.cudagraphs: true\n  foo: 1\n", {}, ["error"]),
        # attention
        ("legacy-attention-flag", "flash_attention: false\n", {}, []),
        ("legacy-attention-flag", "sdp_attention: true\nflash_attention: true\n", {}, ["warning", "info"]),
        ("legacy-attention-flag", "attn_implementation: sdpa\nsdp_attention: true\n", {}, ["error"]),
        ("unknown-attention", "attn_implementation: kernels-community/vllm-flash-attn3\n", {}, []),
        ("unknown-attention", "attn_implementation: fa2\n", {}, ["error"]),
        ("attention-unsupported-card", "attn_implementation: sage\n", T4, ["error"]),
        ("attention-unsupported-card", "attn_implementation: fp8\n", A100, ["error"]),
        ("attention-unsupported-card", "attn_implementation: fp8\n", H100, []),
        ("attention-unsupported-card", "attn_implementation: kernels-community/flash-attn2@v1\n", T4, ["error"]),
        ("attention-unsupported-card", "attn_implementation: flash_attention_2\n", {"gpu": "mi300x"}, []),
        ("eager-attention-quadratic", "attn_implementation: eager\nsequence_len: 1024\n", {}, []),
        ("eager-attention-quadratic", "attn_implementation: eager\nsequence_len: 4096\nbase_model: google/gemma-2-9b\n", {}, []),
        ("eager-attention-quadratic", "attn_implementation: eager\nsequence_len: 4096\nbase_model: google/gemma-2b\n", {}, ["warning"]),
        # loss
        ("loss-kernels-conflict", f"{BOTH}liger_fused_linear_cross_entropy: true\n", {}, ["warning"]),
        ("loss-kernels-conflict", f"{BOTH}liger_fused_linear_cross_entropy: true\ncut_cross_entropy: false\n", {}, []),
        ("loss-kernels-conflict", f"{CUT}chunked_cross_entropy: true\ncut_cross_entropy: false\n", {}, ["error"]),
        ("loss-kernels-conflict", "liger_cross_entropy: true\nchunked_cross_entropy: true\n", {}, ["error"]),  # no plugin
        ("cut-cross-entropy-dtype", f"{CUT}bf16: false\n", {}, ["warning"]),
        ("cut-cross-entropy-dtype", f"{CUT}cut_cross_entropy: true\nfp16: true\n", {}, []),
        ("cut-cross-entropy-dtype", "cut_cross_entropy: true\n", {}, []),  # the plugin is not listed: the key is dropped
        ("liger-tiled-mlp-conflict", "liger_glu_activation: true\ntiled_mlp: true\n", {}, []),
        ("liger-tensor-parallel", f"{LIGER}liger_rms_norm: true\n", TWO, []),
        # sharding
        ("deepspeed-with-fsdp", f"{ZERO3}fsdp:\n  - full_shard\n", TWO, ["error"]),
        ("deepspeed-with-fsdp", f"rl: dpo\n{ZERO3}{FSDP2}", OLD_TWO, ["warning"]),
        ("deepspeed-with-fsdp", f"rl: dpo\n{ZERO3}{FSDP2}", TWO, ["error"]),
        ("fsdp1-deprecated", "fsdp:\n  - full_shard\n", TWO, []),
        ("fsdp1-deprecated", f"fsdp_version: 1\n{FSDP1}", TWO, ["error"]),
        ("fsdp1-deprecated", FSDP1, TWO, []),
        ("fsdp-offload-pin-memory", "fsdp_config:\n  offload_params: true\n  cpu_offload_pin_memory: false\n", OLD_TWO, ["error"]),
        ("fsdp-offload-pin-memory", "fsdp_config:\n  offload_params: true\n  cpu_offload_pin_memory: false\n", TWO, []),
        ("fsdp2-quantized-rl", f"rl: grpo\nadapter: qlora\nload_in_4bit: true\n{FSDP2}", TWO, []),
        ("fsdp2-quantized-rl", "rl: dpo\nadapter: qlora\nload_in_4bit: true\nfsdp_version: 2\n", OLD_TWO, ["error"]),
        ("fsdp2-quantized-rl", f"rl: dpo\nadapter: qlora\nload_in_4bit: true\n{FSDP1}", TWO, ["error"]),
        ("fsdp2-efficient-loading-4bit", f"{QLORA}fsdp_config:\n  cpu_ram_efficient_loading: true\n", TWO, []),
        ("fsdp2-efficient-loading-4bit", f"{QLORA}qlora_sharded_model_loading: false\nfsdp_config:\n  cpu_ram_efficient_loading: true\n", TWO, ["error"]),
        ("fp32-norms-misused", f"fp32_norms: true\n{FSDP1}", OLD_TWO, ["error"]),
        ("fp32-norms-misused", f"fp32_norms: true\n{FSDP1}", TWO, []),
        ("fp32-norms-misused", "fp32_norm_classes:\n  - RMSNorm\n", TWO, ["warning"]),
        ("falcon-fsdp", f"base_model: tiiuae/falcon-7b\n{FSDP2}", OLD_TWO, []),  # Axolotl looks at the old key only
        ("context-parallel-misused", "context_parallel_size: 2\nuse_glm_dsa_kernels: true\n", TWO, []),
        ("context-parallel-misused", "sequence_parallel_degree: 2\nsample_packing: true\nmicro_batch_size: 2\n", OLD_TWO, ["error", "error"]),
        ("context-parallel-misused", "sequence_parallel_degree: 2\nsample_packing: true\nmicro_batch_size: 2\n", TWO, []),
        ("context-parallel-misused", "context_parallel_size: 2\nattn_implementation: eager\n", TWO, ["error"]),
        ("context-parallel-misused", "context_parallel:\n  size: 2\nattn_implementation: eager\n", TWO, ["error"]),
        ("deepspeed-file-missing", "deepspeed:\n  zero_optimization:\n    stage: 1\n", TWO, []),
        ("full-state-dict-gather", "adapter: lora\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n", TWO, []),
        ("vllm-colocate-shares-memory", "trl:\n  vllm_mode: colocate\n", {}, []),
        ("vllm-colocate-shares-memory", f"{COLOCATE}vllm:\n  gpu_memory_utilization: 0.8\n", {}, ["warning"]),
        ("vllm-colocate-shares-memory", f"{COLOCATE}  vllm_enable_sleep_mode: true\n", V20, ["info"]),
        ("vllm-colocate-shares-memory", COLOCATE, {}, []),
        ("auto-find-batch-size", "auto_find_batch_size: false\n", {}, []),
        ("auto-find-batch-size", f"auto_find_batch_size: true\n{ZERO3}", TWO, ["error"]),
        ("auto-find-batch-size", "auto_find_batch_size: true\nrl: dpo\n", {}, ["warning"]),
    ],
)  # fmt: skip
def test_speaks_and_is_silent(rule_id, text, options, expected):
    assert severities(rule_id, text, options) == expected


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("AdamW_8bit", "adamw_8bit"),
        ("adamw_torch_fuse", "adamw_torch_fused"),
        ("adamw", "adamw_torch"),
        ("lion", "lion_32bit"),
    ],
)
def test_a_slip_in_the_optimizer_is_mended(written, meant):
    assert fixed("unknown-optimizer", f"optimizer: {written}\n") == {"optimizer": meant}


def test_an_optimizer_that_could_be_several_gets_no_fix():
    [found] = judge("unknown-optimizer", "optimizer: adamw_torch_16bit\n")[1]
    assert found.fix is None


def test_optimizers_that_raise_later_are_not_suggested():
    [found] = judge("unknown-optimizer", "optimizer: ao_adamw_9bit\n")[1]
    assert "ao_adamw_8bit" not in found.message


def test_old_fsdp_spellings_are_edited_as_written():
    text = (
        "adapter: qlora\nload_in_4bit: true\nfsdp_config:\n  fsdp_version: 2\n  fsdp_cpu_ram_efficient_loading: true\n"
    )
    values = fixed("fsdp2-efficient-loading-4bit", text, OLD_TWO)
    assert values["fsdp_config"] == {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": False}
    values = fixed("fsdp1-deprecated", "fsdp_config:\n  fsdp_version: 1\n  offload_params: true\n", TWO)
    assert values == {"fsdp_config": {"fsdp_version": 2, "offload_params": True}}


def test_no_way_out_is_offered_where_the_other_rule_refuses_it():
    [found] = judge("nonreentrant-qlora-zero3", f"rl: dpo\n{QLORA}{ZERO3}", TWO)[1]
    assert found.fix is None
    [found] = judge("fsdp1-deprecated", f"rl: dpo\n{QLORA}{FSDP1}", OLD_TWO)[1]
    assert found.fix is None


@pytest.mark.parametrize(
    ("bound", "version"),
    [
        ("context_parallel_size: 2\n", "0.19.0"),
        ("gemma4_hybrid_attn_impl: true\n", "0.21.0"),
        ("batch_flattening: true\n", "0.21.0"),
    ],
)
def test_sdpa_is_not_offered_where_another_key_needs_flash_attention(bound, version):
    target = {**T4, "versions": (f"axolotl=={version}",)}
    [found] = judge("attention-unsupported-card", f"attn_implementation: flash_attention_2\n{bound}", target)[1]
    assert found.fix is None


@pytest.mark.parametrize("version", ["0.20.0", "0.21.0"])
def test_context_parallelism_runs_on_sdpa_since_0_20(version):
    text = "attn_implementation: flash_attention_2\ncontext_parallel_size: 2\n"
    [found] = judge("attention-unsupported-card", text, {**T4, "versions": (f"axolotl=={version}",)})[1]
    assert found.fix is not None


def test_reentrant_is_written_where_the_file_has_room():
    text = f"{STRIDED}gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  preserve_rng_state: true\n"
    values = fixed("ebft-compile-checkpointing", text)
    assert values["gradient_checkpointing_kwargs"] == {"preserve_rng_state": True, "use_reentrant": True}
    values = fixed("ebft-compile-checkpointing", f"{STRIDED}gradient_checkpointing: true\n")
    assert values["gradient_checkpointing_kwargs"] == {"use_reentrant": True}


def test_an_old_flag_is_replaced_by_the_backend_that_runs():
    assert fixed("attention-unsupported-card", "flash_attention: true\n", T4) == {"attn_implementation": "sdpa"}


def test_writing_the_default_is_safe_and_changing_the_dtype_is_not():
    [unset] = judge("cut-cross-entropy-dtype", f"{CUT}cut_cross_entropy: true\n")[1]
    [off] = judge("cut-cross-entropy-dtype", f"{CUT}cut_cross_entropy: true\nbf16: false\n")[1]
    assert (unset.fix.safe, off.fix.safe) == (True, False)


@pytest.mark.parametrize(("first", "winner"), [("cut", "Liger"), ("liger", "cut cross entropy")])
def test_the_plugin_listed_last_wins_the_loss(first, winner):
    plugins = BOTH if first == "cut" else LIGER + "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
    [found] = judge("loss-kernels-conflict", f"{plugins}liger_fused_linear_cross_entropy: true\n")[1]
    assert f"{winner}, listed last, wins" in found.message


def test_numbers_in_messages():
    [eager] = judge(
        "eager-attention-quadratic", "attn_implementation: eager\nsequence_len: 8192\nmicro_batch_size: 2\n"
    )[1]
    assert "2 × 8192² × 4 bytes = 512 MiB" in eager.message
    text = "auto_find_batch_size: true\nmicro_batch_size: 8\ngradient_accumulation_steps: 4\n"
    [shrinks] = judge("auto-find-batch-size", text, TWO)[1]
    assert "micro 8 × accumulation 4 × ranks 2 = 64 to 7 × 4 × 2 = 56" in shrinks.message
    [vllm] = judge("vllm-colocate-shares-memory", COLOCATE, {"gpu": "24GB", **V20})[1]
    assert "0.9 × 24.0 GiB = 21.6 GiB" in vllm.message
    [rows] = judge(
        "context-parallel-misused",
        (
            "context_parallel_size: 2\nattn_implementation: flash_attention_2\nsample_packing: true\n"
            "micro_batch_size: 4\ngradient_accumulation_steps: 2\n"
        ),
        OLD_TWO,
    )[1]
    assert "Micro-batch 4 → 1, accumulation 2 → 8" in rows.fix.title
