"""Document → RunSpec: what Axolotl would really do."""

import pytest

from opened import make_target, resolve
from vramwise.documents.document import parse_document
from vramwise.types import SETTINGS
from vramwise.variants.bounds import has_no_upper_bound, unmodelled


def run_of(text: str, **target):
    document = parse_document("config.yml", text.encode())
    return resolve(document, make_target(env=target.pop("env", {}), look_around=False, **target))


def test_defaults_of_an_empty_run():
    run = run_of("base_model: x\n")
    assert (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.batch.effective_batch_size) == (
        1,
        1,
        1,
    )
    assert run.shapes.sequence_len == 512
    assert run.optimizer.name == "adamw_torch_fused"
    assert run.kernels.attn_implementation == "sdpa"
    assert run.evaluation.evaluates is False
    assert run.evaluation.eval_batch_size is None
    assert run.savings.gradient_checkpointing is False
    assert run.origins["sequence_len"].kind == "default"


def test_effective_batch_counts_data_parallel_ranks():
    text = "micro_batch_size: 2\ngradient_accumulation_steps: 4\ntensor_parallel_size: 2\n"
    run = run_of(text, gpus=8)
    assert run.batch.data_parallel == 4
    assert run.batch.effective_batch_size == 2 * 4 * 4


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\n", "4bit"),
        ("adapter: lora\nload_in_8bit: true\nquantize_moe_experts: true\n", "8bit"),
        ("adapter: qlora\nload_in_4bit: true\n", None),
        ("adapter: qlora\nload_in_4bit: true\nllama4_linearized_experts: true\n", "4bit"),
        ("adapter: lora\nllama4_linearized_experts: true\n", None),
    ],
)
def test_experts_are_quantised_only_if_asked(text, bits):
    assert run_of(text).loading.expert_quantization == bits


ALL_KERNELS = ("mlp", "qkv", "o", "embedding")


@pytest.mark.parametrize(
    ("text", "fused"),
    [
        ("adapter: lora\n", ALL_KERNELS),
        ("adapter: qlora\nload_in_4bit: true\npeft_use_dora: true\nlora_dropout: 0.1\n", ALL_KERNELS),
        ("adapter: lora\nlora_mlp_kernel: true\n", ("mlp",)),
        ("adapter: lora\nlora_o_kernel: false\n", ()),
        ("adapter: lora\nlora_embedding_kernel: true\n", ()),
        ("adapter: lora\nload_in_8bit: true\n", ()),
        ("adapter: lora\nrl: dpo\n", ()),
        ("adapter: lora\nrl: orpo\nlora_qkv_kernel: true\nlora_o_kernel: true\n", ("qkv", "o")),
        ("lora_mlp_kernel: true\n", ()),
        ("base_model: x\n", ()),
    ],
)
def test_which_lora_kernels_are_on(text, fused):
    run = run_of(text)
    assert run.adapter.fused_lora == fused
    assert run.adapter.lora_kernels is bool(fused)
    assert run.adapter.embeddings_want_grads is (run.adapter.kind is not None)


@pytest.mark.parametrize(
    ("version", "wide"), [("0.18.0", False), ("0.19.0", False), ("0.20.0", True), ("0.21.0", True)]
)
def test_since_0_20_the_kernels_make_fp32_gradients(version, wide):
    assert run_of("adapter: lora\n", versions=(f"axolotl=={version}",)).adapter.fused_lora_wide_grads is wide


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("sample_packing: true\nattn_implementation: sdpa\nbf16: true\n", True),
        ("sample_packing: true\nattn_implementation: sdpa\nbf16: true\nsdpa_varlen: false\n", False),
        ("sample_packing: true\nattn_implementation: sdpa\nbf16: false\nfp16: false\n", False),
        ("sample_packing: true\nattn_implementation: flash_attention_2\n", False),
        ("attn_implementation: sdpa\n", False),
    ],
)
def test_packing_under_sdpa_takes_the_kernel_for_rows_of_any_length(text, on):
    assert run_of(text).kernels.varlen_sdpa is on


def test_batch_size_does_not_change_accumulation():
    run = run_of("batch_size: 8\nmicro_batch_size: 1\n")
    assert run.batch.gradient_accumulation_steps == 1
    assert run.batch.effective_batch_size == 1


def test_an_explicit_null_accumulation_divides_and_floors():
    run = run_of("batch_size: 9\nmicro_batch_size: 2\ngradient_accumulation_steps: null\n")
    assert run.batch.gradient_accumulation_steps == 4


@pytest.mark.parametrize(
    ("text", "padded", "multiple", "constant"),
    [
        ("sequence_len: 1000\npad_to_sequence_len: true\n", True, 1024, True),
        ("sequence_len: 1000\nsample_packing: true\n", True, 1024, True),
        ("sequence_len: 1000\n", False, 64, False),
        ("sequence_len: 1000\npad_to_sequence_len: false\n", False, 1, False),
        ("sequence_len: 1000\npad_to_multiple_of: 16\n", False, 16, False),
        ("sequence_len: 1000\nreward_model: true\n", True, 1024, True),
        ("sequence_len: 1000\npretraining_dataset:\n  - path: x\n", False, 64, True),
    ],
)
def test_padding(text, padded, multiple, constant):
    run = run_of(text)
    assert (run.shapes.pad_to_sequence_len, run.shapes.pad_multiple, run.shapes.constant_shapes) == (
        padded,
        multiple,
        constant,
    )


@pytest.mark.parametrize(
    ("attention", "rows"),
    [
        ("flash_attention_2", "one"),
        ("sdpa", "micro"),
        ("flex_attention", "one"),
        ("kernels-community/flash-attn3", "one"),
    ],
)
def test_packing_rows_follow_the_attention_backend(attention, rows):
    assert run_of(f"sample_packing: true\nattn_implementation: {attention}\n").shapes.packing_rows == rows


@pytest.mark.parametrize(
    ("text", "gpu", "precision", "weights"),
    [
        ("bf16: auto\n", "rtx-4090", "bf16", "bf16"),
        ("bf16: auto\n", "t4", "fp16", "fp16"),
        ("base_model: x\n", "v100", "fp16", "fp16"),
        ("bf16: true\n", "t4", "bf16", "bf16"),
        ("fp16: true\n", "a100", "fp16", "fp16"),
        ("bf16: false\n", "a100", "fp32", "fp32"),
        ("bf16:\n", "a100", "fp32", "fp32"),
        ("fp8: true\nbf16: true\n", "h100", "fp8", "bf16"),
        ("bf16: false\nfloat16: true\n", "a100", "fp16", "fp16"),
        ("bf16: auto\nfp16: false\n", "t4", "fp32", "fp32"),
        ("bf16: false\nload_in_8bit: true\nadapter: lora\n", "a100", "fp32", "fp16"),
    ],
)
def test_precision(text, gpu, precision, weights):
    run = run_of(text, gpu=gpu)
    assert (run.precision.compute, run.precision.weights_dtype) == (precision, weights)


def test_auto_without_a_card_is_an_assumption():
    run = run_of("bf16: auto\n")
    assert run.precision.compute == "bf16"
    assert run.origins["precision"].kind == "assumed"


@pytest.mark.parametrize(
    ("text", "fp32"),
    [
        ("bf16: true\n", True),
        ("bf16: true\nattn_implementation: eager\n", True),
        ("bf16: true\nattn_implementation: flash_attention_2\n", False),
        ("bf16: true\nadapter: lora\n", False),
        ("bf16: true\nfsdp_config:\n  version: 2\n", False),
        ("bf16: true\nplugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n", False),
    ],
)
def test_fp32_embeddings(text, fp32):
    assert run_of(text).precision.fp32_embeddings is fp32


def test_lora_with_4bit_is_an_fp32_base():
    run = run_of("adapter: lora\nload_in_4bit: true\nbf16: true\n")
    assert run.loading.quantization is None
    assert run.precision.weights_dtype == "fp32"
    assert run_of("adapter: qlora\nload_in_4bit: true\nbf16: true\n").loading.quantization == "4bit"
    prequantised = run_of("base_model: unsloth/llama-3-8b-bnb-4bit\nadapter: lora\nload_in_4bit: true\nbf16: true\n")
    assert prequantised.precision.weights_dtype == "bf16"


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("micro_batch_size: 4\nval_set_size: 0.1\n", 4),
        ("micro_batch_size: 4\nval_set_size: 0.1\neval_batch_size: 8\n", 8),
        ("micro_batch_size: 4\neval_batch_size: 8\n", None),
        ("micro_batch_size: 4\ntest_datasets:\n  - path: x\neval_batch_size: 8\n", 8),
        ("micro_batch_size: 4\nval_set_size: 0.1\neval_batch_size: 8\nsample_packing: true\n", 4),
        (
            "micro_batch_size: 4\nval_set_size: 0.1\neval_batch_size: 8\nsample_packing: true\neval_sample_packing: false\n",
            8,
        ),
        ("micro_batch_size: 4\nval_set_size: 0.1\neval_batch_size: 8\neval_strategy: 'no'\n", None),
    ],
)
def test_eval_batch(text, batch):
    assert run_of(text).evaluation.eval_batch_size == batch


def test_up_to_0_20_strategy_no_evaluates_once():
    text = "micro_batch_size: 4\nval_set_size: 0.1\neval_batch_size: 8\neval_strategy: 'no'\n"
    run = run_of(text, versions=("axolotl==0.20.0",))
    assert (run.evaluation.eval_batch_size, run.evaluation.eval_on_start) == (8, True)
    run = run_of(text)
    assert (run.evaluation.evaluates, run.evaluation.eval_on_start) == (False, False)
    assert "0.21" in run.origins["evaluates"].why


@pytest.mark.parametrize(
    ("version", "written", "starts"),
    [("0.21.0", "false", False), ("0.21.0", "true", True), ("0.21.0", "null", True), ("0.20.0", "false", True)],
)
def test_eval_on_start_is_a_key_since_0_21(version, written, starts):
    text = f"val_set_size: 0.1\neval_steps: 10\neval_on_start: {written}\n"
    assert run_of(text, versions=(f"axolotl=={version}",)).evaluation.eval_on_start is starts


@pytest.mark.parametrize(
    ("text", "kind", "params", "optimizer"),
    [
        ("deepspeed: deepspeed_configs/zero1.json\n", "zero1", False, False),
        ("deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json\n", "zero3", True, True),
        ("deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_params.json\n", "zero3", True, False),
        ("deepspeed: {zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}\n", "zero2", False, True),
        ("deepspeed: my/own.json\n", "zero2", False, False),
        ("fsdp_config:\n  fsdp_offload_params: true\n", "fsdp2", True, True),
        ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "fsdp2", False, False),
        ("fsdp_config:\n  fsdp_version: 2\n", "fsdp2", False, False),
        ("base_model: x\n", "ddp", False, False),
    ],
)
def test_sharding(text, kind, params, optimizer):
    run = run_of(text, gpus=4)
    assert (run.sharding.kind, run.sharding.offload_params, run.sharding.offload_optimizer) == (kind, params, optimizer)


@pytest.mark.parametrize(
    ("version", "text", "kind", "why"),
    [
        ("0.19.0", "fsdp_config:\n  offload_params: true\n", "fsdp1", "unset means 1 in Axolotl 0.19"),
        ("0.20.0", "fsdp_config:\n  offload_params: true\n", "fsdp2", "unset means 2 in Axolotl 0.20"),
        ("0.21.0", "fsdp_version: 1\nfsdp_config:\n  offload_params: true\n", "fsdp2", "has FSDP2 only"),
        ("0.19.0", "fsdp:\n  - full_shard\n", "fsdp1", "unset means 1"),
    ],
)
def test_what_fsdp_means_in_a_version(version, text, kind, why):
    run = run_of(text, gpus=2, versions=(f"axolotl=={version}",))
    assert run.sharding.kind == kind
    assert why in run.origins["sharding"].why


def test_a_deepspeed_file_that_exists_is_read(tmp_path, monkeypatch):
    (tmp_path / "own.json").write_text('{"zero_optimization": {"stage": 3}}')
    monkeypatch.chdir(tmp_path)
    run = run_of("deepspeed: own.json\n", gpus=2)
    assert run.sharding.kind == "zero3"
    assert "own.json" in run.origins["sharding"].why


@pytest.mark.parametrize("content", ["[1]", "{", "\x00", '{"zero_optimization": 5}'])
def test_a_broken_deepspeed_file_does_not_stop_the_check(content, tmp_path, monkeypatch):
    (tmp_path / "own.json").write_text(content)
    monkeypatch.chdir(tmp_path)
    assert run_of("deepspeed: own.json\n", gpus=2).sharding.kind in ("zero2", "ddp")


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("base_model: x\n", "stock"),
        ("liger_fused_linear_cross_entropy: true\n", "stock"),
        (
            "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true\n",
            "liger_fused_linear",
        ),
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n", "cut"),
        (
            "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\ncut_cross_entropy: false\n",
            "stock",
        ),
        ("chunked_cross_entropy: true\n", "chunked"),
    ],
)
def test_loss_kernel(text, loss):
    assert run_of(text).kernels.loss_kernel == loss


@pytest.mark.parametrize(
    ("text", "asked", "recompute", "reentrant", "offload"),
    [
        ("gradient_checkpointing: true\n", True, True, True, "off"),
        ("gradient_checkpointing: true\nrl: dpo\n", True, True, False, "off"),
        (
            "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n",
            True,
            True,
            False,
            "off",
        ),
        ("gradient_checkpointing: offload\nadapter: lora\n", True, True, True, "stream"),
        ("gradient_checkpointing: true\nactivation_offloading: disk\n", True, True, False, "stream"),
        ("gradient_checkpointing: true\nactivation_offloading: legacy\n", True, True, False, "legacy"),
        ("gradient_checkpointing: true\nactivation_offloading: true\nadapter: lora\n", True, True, True, "stream"),
        ("gradient_checkpointing: true\nactivation_offloading: true\nadapter: x\n", True, False, True, "stream"),
    ],
)
def test_checkpointing(text, asked, recompute, reentrant, offload):
    run = run_of(text, versions=("axolotl==0.20.0",))
    assert run.savings.gradient_checkpointing is asked
    assert run.savings.recompute is recompute
    assert run.savings.checkpointing_reentrant is reentrant
    assert run.savings.activation_offloading == offload


@pytest.mark.parametrize(
    ("text", "reentrant"),
    [
        ("gradient_checkpointing: true\n", False),
        ("gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  preserve_rng_state: true\n", False),
        ("gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n", True),
        ("gradient_checkpointing: true\ndeepspeed: deepspeed_configs/zero3.json\n", True),
        ("gradient_checkpointing: true\nrl: dpo\n", False),
        ("gradient_checkpointing: true\nactivation_offloading: hidden_states\n", False),
        ("gradient_checkpointing: true\nactivation_offloading: true\nadapter: lora\n", False),
        # PEFT's preparation of a quantised base has the last word there (seen on an H200: all that is saved goes)
        (
            "gradient_checkpointing: true\nactivation_offloading: true\nadapter: qlora\nload_in_4bit: true\n",
            True,
        ),
    ],
)
def test_since_0_21_checkpointing_is_non_reentrant(text, reentrant):
    assert run_of(text, gpus=2).savings.checkpointing_reentrant is reentrant


def test_the_reason_names_the_version():
    text = "gradient_checkpointing: true\n"
    assert "0.21" in run_of(text).origins["checkpointing_reentrant"].why
    old = run_of(text, versions=("axolotl==0.19.0",)).origins["checkpointing_reentrant"].why
    assert old == "Axolotl 0.19's default for SFT; since 0.21 it is non-reentrant"


@pytest.mark.parametrize(
    ("version", "text", "upcast"),
    [
        ("0.19.0", "adapter: qlora\nload_in_4bit: true\n", True),
        ("0.19.0", "adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: true\n", False),
        ("0.19.0", "adapter: lora\nload_in_8bit: true\nembeddings_skip_upcast: true\n", True),
        ("0.20.0", "adapter: qlora\nload_in_4bit: true\n", False),
        ("0.21.0", "adapter: lora\nload_in_8bit: true\n", False),
        ("0.21.0", "adapter: lora\nload_in_8bit: true\nembeddings_skip_upcast: false\n", True),
        ("0.21.0", "adapter: qlora\nload_in_4bit: true\nfsdp_config:\n  offload_params: false\n", True),
    ],
)
def test_embeddings_go_to_fp32_for_a_moment(version, text, upcast):
    run = run_of(text, gpus=2, versions=(f"axolotl=={version}",))
    touched = {"embedding", "lm_head"} & {*run.loading.upcasts_at_load}
    assert (bool(touched) or run.loading.quantised_base_prepared == "all") is upcast


@pytest.mark.parametrize(
    ("version", "text", "kinds"),
    [
        ("0.19.0", "adapter: lora\n", ("norm", "router", "embedding", "lm_head")),
        ("0.19.0", "attn_implementation: flash_attention_2\n", ("norm", "router", "embedding", "lm_head")),
        ("0.19.0", "adapter: lora\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\n", ()),
        ("0.21.0", "adapter: lora\n", ("norm", "router")),
        ("0.21.0", "attn_implementation: flash_attention_2\n", ("norm", "router")),
        ("0.21.0", "attn_implementation: sdpa\n", ("norm", "router", "embedding", "lm_head")),
        ("0.21.0", "bf16: false\nfp16: false\n", ()),
    ],
)
def test_what_axolotl_takes_to_fp32_while_loading(version, text, kinds):
    assert run_of(text, gpus=2, versions=(f"axolotl=={version}",)).loading.upcasts_at_load == kinds


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("adapter: lora\n", "device"),
        ("device_map: cpu\n", "host"),
        ("device_map: cpu\nadapter: qlora\nload_in_4bit: true\n", "device"),
        ("reinit_weights: true\n", "made"),
        ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "host"),
    ],
)
def test_by_which_way_axolotls_weights_come(text, way):
    run = run_of(text, gpus=2)
    assert run.loading.loads_through == way
    assert run.loading.resets_load_peaks


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("adapter: lora\n", "no"),
        ("adapter: qlora\nload_in_4bit: true\n", "but embeddings"),
        ("adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: false\n", "all"),
        ("adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\n", "no"),
        ("adapter: qlora\nload_in_4bit: true\nllama4_linearized_experts: true\n", "but embeddings"),
    ],
)
def test_when_peft_prepares_the_base(text, prepared):
    assert run_of(text).loading.quantised_base_prepared == prepared


def test_the_plain_engine_loads_by_way_of_the_host_and_quantised_bases_onto_the_card():
    target = make_target()
    for text, way in ((b"adapter: lora\n", "host"), (b"adapter: qlora\nload_in_4bit: true\n", "device")):
        run = resolve(parse_document("config.yml", text), target, "transformers")
        assert (run.loading.loads_through, run.loading.upcasts_at_load, run.loading.resets_load_peaks) == (
            way,
            (),
            False,
        )


def test_context_parallelism_by_its_block():
    text = "context_parallel:\n  size: 2\n"
    assert run_of(text, gpus=4).sharding.context_parallel_size == 2
    assert run_of(text, gpus=4, versions=("axolotl==0.19.0",)).sharding.context_parallel_size == 1


@pytest.mark.parametrize(
    ("torch", "env", "launcher", "allocator"),
    [
        ("2.8", {}, "cli", "expandable_segments:True,roundup_power2_divisions:16"),
        ("2.9", {}, "cli", ""),
        ("2.11", {}, "cli", "expandable_segments:True"),
        ("2.11", {}, "module", ""),
        ("2.8", {"PYTORCH_CUDA_ALLOC_CONF": ""}, "cli", ""),
        ("2.11", {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}, "cli", "max_split_size_mb:128"),
        ("2.9", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "cli", "expandable_segments:True"),
        (
            "2.10",
            {"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.8"},
            "cli",
            "expandable_segments:True,roundup_power2_divisions:16",
        ),
    ],
)
def test_effective_allocator(torch, env, launcher, allocator):
    assert run_of("base_model: x\n", torch=torch, env=env, launcher=launcher).allocator.settings == allocator


def test_alloc_conf_wins_over_everything():
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert run_of("base_model: x\n", env=env, alloc_conf="").allocator.settings == ""


def test_numbers_in_quotes_count_as_the_schema_reads_them():
    run = run_of(
        "micro_batch_size: '4'\nsequence_len: 2048.0\nbf16: 'true'\nsample_packing: 'yes'\nlora_dropout: '5e-2'\n"
    )
    assert (run.batch.micro_batch_size, run.shapes.sequence_len) == (4, 2048)
    assert run.precision.compute == "bf16"
    assert run.shapes.sample_packing is True
    assert run.adapter.lora_dropout == 0.05


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("val_set_size: 0.1\n", False),
        ("val_set_size: 0.1\nevals_per_epoch: 1\n", False),  # one eval in one epoch: Axolotl drops it
        ("val_set_size: 0.1\nevals_per_epoch: 1\nnum_epochs: 2\n", True),
        ("val_set_size: 0.1\neval_steps: 50\n", True),
        ("val_set_size: 0.1\nevaluation_strategy: epoch\n", True),
        ("eval_steps: 50\n", False),
    ],
)
def test_an_eval_schedule_brings_an_eval_on_start(text, start):
    assert run_of(text).evaluation.eval_on_start is start


def test_padding_that_does_not_hold():
    assert run_of("pad_to_sequence_len: true\nprocessor_type: AutoProcessor\n").shapes.constant_shapes is False
    assert run_of("sample_packing: true\nprocessor_type: AutoProcessor\n").shapes.constant_shapes is True
    assert run_of("pad_to_sequence_len: true\nbatch_flattening: true\n").shapes.constant_shapes is False


def test_nonsense_counts_do_not_break_the_arithmetic():
    run = run_of("micro_batch_size: 0\ngradient_accumulation_steps: -3\nsequence_len: 0\n")
    assert run.batch.effective_batch_size == 1


def test_every_field_has_an_origin():
    run = run_of("base_model: x\nadapter: qlora\nload_in_4bit: true\nval_set_size: 0.1\n", gpu="t4")
    names = set(SETTINGS)
    assert names == set(run.origins)


def test_origins_point_at_the_line():
    run = run_of("base_model: x\n\nmicro_batch_size: 4\nfsdp_config:\n  fsdp_offload_params: true\n", gpus=2)
    assert run.origins["micro_batch_size"].place.line == 3
    assert run.origins["offload_params"].place.line == 5


@pytest.mark.parametrize(
    ("written", "steps"),
    [("1e-1", 0.1), ("'0.5'", 0.5), ("'.5'", 0.5), ("'8'", 8), ("'8.0'", 8), ("0.25", 0.25), ("10", 10)],
)
def test_steps_are_counts_or_shares(written, steps):
    run = run_of(f"eval_steps: {written}\n")
    assert (run.evaluation.eval_steps, type(run.evaluation.eval_steps)) == (steps, type(steps))


def test_an_empty_learning_rate_is_read():
    assert run_of("learning_rate: ''\n").config.get("learning_rate") == ""


def test_texts_in_blocks_count_as_the_schema_reads_them():
    run = run_of("fsdp_version: 2\nfsdp_config:\n  offload_params: 'false'\n  state_dict_type: FULL_STATE_DICT\n")
    assert run.config.get("fsdp_config.offload_params") is False
    assert run.sharding.offload_params is False


def test_the_plain_engine_does_without_pefts_preparation():
    document = parse_document("config.yml", b"adapter: qlora\nload_in_4bit: true\n")
    target = make_target()
    assert resolve(document, target).loading.quantised_base_prepared == "but embeddings"
    assert resolve(document, target, "transformers").loading.quantised_base_prepared == "no"


def test_evaluation_empties_the_cache_as_often_as_gradients_are_accumulated():
    text = "val_set_size: 0.1\neval_steps: 10\ngradient_accumulation_steps: 4\n"
    assert run_of(text).evaluation.eval_empties_every == 4
    assert run_of(f"{text}rl: dpo\n").evaluation.eval_empties_every is None
    assert run_of("gradient_accumulation_steps: 4\n").evaluation.eval_empties_every is None


@pytest.mark.parametrize(
    ("text", "within", "around"),
    [
        ("micro_batch_size: 1\n", None, None),
        ("torch_empty_cache_steps: 5\n", 5, None),
        ("gc_collect_steps: -1\n", None, -1),
        ("gc_steps: 7\n", 7, 7),
        ("gc_steps: -1\n", None, -1),
        ("gc_steps: 7\ntorch_empty_cache_steps: 5\n", 5, 7),
        ("gc_steps: 7\ngc_collect_steps: 3\n", None, 3),
    ],
)
def test_keys_that_empty_the_cache(text, within, around):
    run = run_of(text)
    assert (run.allocator.empty_cache_steps, run.allocator.collect_steps) == (within, around)


@pytest.mark.parametrize(
    ("written", "patterns", "wanted"),
    [
        ("['model.layers.(1[0-5])']", (r"model\.layers\.(1[0-5])",), False),
        ("['^model.embed_tokens.weight$[:32000]']", (r"^model\.embed_tokens\.weight$",), True),
        ("[lm_head]", ("lm_head",), True),
        ("['layers.2[0-9]+.block', 'a.+']", (r"layers\.2[0-9]+\.block", "a.+"), False),
    ],
)
def test_unfrozen_parameters_as_regular_expressions(written, patterns, wanted):
    run = run_of(f"unfrozen_parameters: {written}\n")
    assert (run.adapter.unfrozen, run.adapter.embeddings_want_grads) == (patterns, wanted)


@pytest.mark.parametrize(
    ("key", "version", "loss"),
    [("use_dft", "0.21.0", "dft"), ("use_eaft", "0.19.0", "eaft"), ("use_dft", "0.19.0", "stock")],
)
def test_losses_of_the_trainers_own(key, version, loss):
    assert run_of(f"{key}: true\n", versions=(f"axolotl=={version}",)).kernels.loss_kernel == loss


STAGED = "adapter: qlora\nload_in_4bit: true\nfsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n"


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (STAGED, "host"),
        (STAGED + "qlora_sharded_model_loading: false\n", "device"),
        (STAGED.replace("ing: true", "ing: false"), "device"),
        (STAGED.replace("adapter: qlora", "adapter: lora"), "host"),
    ],
)
def test_axolotl_stages_qlora_in_host_memory_by_itself(text, way):
    """Since 0.20, with cpu_ram_efficient_loading."""
    assert run_of(text, gpus=2).loading.loads_through == way


def test_rows_with_images_are_not_bounded_by_sequence_len():
    """Neither end is known: rows are not cut, and images are not counted."""
    run = run_of("processor_type: AutoProcessor\nsequence_len: 512\n")
    assert has_no_upper_bound(run)
    assert {one.less for one in unmodelled(run)} == {True, False}
    assert not has_no_upper_bound(run_of("sequence_len: 512\n"))
