"""Precision, allocator and method rules beyond their own examples: where they speak, and where they must not."""

from dataclasses import replace

import pytest

from opened import check_document, example_document, make_target, trainer_name
from vramwise import explain
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.types import Severity, Stack

BASE = "base_model: meta-llama/Llama-3.2-1B\n"
OLD = ("axolotl==0.19.0",)
LORA = f"{BASE}adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
KERNELS = "plugins:\n  - axolotl.integrations.kernels.KernelsPlugin\n"


def judge(rule_id: str, text: str, env: dict[str, str] | None = None, **target):
    rule = explain(rule_id)
    where = make_target(env=env or {}, look_around=False, **target)
    return list(check_document(parse_document("t.yml", text.encode()), where, [rule]).findings)


def only(findings):
    assert len(findings) == 1, [found.message for found in findings]
    return findings[0]


class TestFp16FullFinetune:
    def found(self, text, **target):
        return judge("fp16-full-finetune", BASE + text, **target)

    @pytest.mark.parametrize(
        "text", ["fp16: true\n", "fp16: true\nbf16: false\nattn_implementation: flash_attention_2\n"]
    )
    def test_fires_without_packing_and_under_flash_attention(self, text):
        found = only(self.found(text))
        assert found.severity is Severity.ERROR
        assert found.key == "fp16"
        assert "Attempting to unscale FP16 gradients" in found.message
        assert "expected mat1 and mat2 to have the same dtype" in found.message

    def test_packing_without_flash_attention_is_said(self):
        plain = only(self.found("fp16: true\n")).message
        packed = only(self.found("fp16: true\nsample_packing: true\n")).message
        assert "no flash attention" in packed
        assert packed != plain

    def test_pure_float16_fails_on_fp32_embeddings(self):
        assert "expected mat1" in only(self.found("bf16: false\nfloat16: true\n")).message
        assert self.found("bf16: false\nfloat16: true\nattn_implementation: flash_attention_2\n") == []

    def test_auto_on_an_old_card_warns(self):
        found = only(self.found("bf16: auto\n", gpu="t4"))
        assert found.severity is Severity.WARNING
        assert "emulated" in found.message
        assert self.found("bf16: auto\n", gpu="h100") == []

    def test_no_fix_towards_bf16_on_a_card_without_it(self):
        assert only(self.found("fp16: true\n", gpu="t4")).fix is None

    @pytest.mark.parametrize(
        "text",
        [
            "fp16: true\nadapter: lora\n",
            "fp16: true\nbf16: true\n",
            "fp16: true\ndeepspeed: deepspeed_configs/zero2.json\n",
            "fp16: true\nfsdp_version: 1\nfsdp_config:\n  offload_params: false\n",
            "fp16: false\n",
        ],
    )
    def test_is_silent_where_no_plain_scaler_meets_fp16_weights(self, text):
        assert self.found(text, gpus=2, versions=OLD) == []

    def in_script(self, dtype, more="", trainer="transformers"):
        args, start = ("TrainingArguments", "Trainer") if trainer == "transformers" else ("SFTConfig", "SFTTrainer")
        text = (
            f"import torch\nfrom transformers import AutoModelForCausalLM\nfrom {trainer} import {start}, {args}\n"
            f'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype={dtype})\n{more}'
            f'{start}(model=model, args={args}("out", fp16=True)).train()\n'
        )
        document = example_document(text)
        target = make_target(trainer=trainer_name(document))
        return list(check_document(document, target, [explain("fp16-full-finetune")]).findings)

    @pytest.mark.parametrize("trainer", ["transformers", "trl"])
    @pytest.mark.parametrize(
        ("dtype", "words"), [("torch.bfloat16", "not implemented for 'BFloat16'"), ("torch.float16", "FP16 gradients")]
    )
    def test_weights_of_16_bits_in_scripts(self, trainer, dtype, words):
        found = only(self.in_script(dtype, trainer=trainer))
        assert found.severity is Severity.ERROR
        assert words in found.message

    @pytest.mark.parametrize("trainer", ["transformers", "trl"])
    def test_weights_in_fp32_are_scaled(self, trainer):
        assert self.in_script("torch.float32", trainer=trainer) == []

    def test_an_adapter_is_fp32_but_copies_of_whole_modules_are_not(self):
        lora = "from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig({}))\n"
        assert self.in_script("torch.float16", lora.format("r=8")) == []
        saved = lora.format('r=8, modules_to_save=["lm_head"]')
        assert "adapter's trained weights are fp16" in only(self.in_script("torch.float16", saved)).message


class TestBf16:
    def test_literal_true_by_card(self):
        assert only(judge("bf16-unsupported", "bfloat16: true\nbf16: false\n", gpu="v100")).key == "bfloat16"
        assert judge("bf16-unsupported", "bf16: true\n", gpu="rtx-3090") == []
        assert judge("bf16-unsupported", "bf16: true\n") == []

    def test_unset_counts_as_auto_but_null_does_not(self):
        assert only(judge("bf16-auto-emulated", LORA, gpu="t4")).severity is Severity.INFO
        assert judge("bf16-auto-emulated", LORA + "bf16:\n", gpu="t4") == []

    def test_a_full_finetune_is_not_sent_to_fp16(self):
        assert only(judge("bf16-auto-emulated", BASE, gpu="t4")).fix is None

    def test_null_means_fp32(self):
        assert "4 bytes per parameter instead of 2" in only(judge("fp32-weights", "bf16:\n")).message
        assert judge("fp32-weights", "bf16: false\nfp16: true\n") == []
        assert judge("fp32-weights", "bf16: false\nadapter: lora\nload_in_4bit: true\n") == []


class TestFp8:
    def test_ada_has_fp8_and_is_refused(self):
        assert "has fp8 units" in only(judge("fp8-unsupported-card", "fp8: true\n", gpu="l40s")).message
        assert "has no fp8" in only(judge("fp8-unsupported-card", "fp8: true\n", gpu="a100-80gb")).message

    def test_auto_compile_counts_by_torch_version(self):
        text = "fp8: true\ntorch_compile: auto\n"
        assert judge("fp8-without-compile", text, torch="2.11") == []
        assert only(judge("fp8-without-compile", text, torch="2.4", versions=OLD))

    def test_old_spelling_is_the_one_that_is_edited(self):
        text = "fp8: true\nfsdp_version: 2\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
        fix = only(judge("fp8-checkpointing-slow", text)).fix
        assert fix.edits[0].key == "fsdp_config.fsdp_activation_checkpointing"

    def test_all_gather_needs_tensorwise_scaling(self):
        text = "fp8: true\nfsdp_config: {fsdp_version: 2}\nfp8_enable_fsdp_float8_all_gather: true\nfp8_config:\n  recipe: rowwise\n"
        assert "rowwise" in only(judge("fp8-all-gather-without-fsdp2", text)).message

    @pytest.mark.parametrize(
        ("text", "fires"),
        [
            ("micro_batch_size: 16\npad_to_sequence_len: false\n", False),
            ("micro_batch_size: 8\npad_to_sequence_len: false\n", True),
            ("sequence_len: 1000\npad_to_sequence_len: true\n", False),
            ("sequence_len: 1000\npad_to_sequence_len: true\npad_to_multiple_of: 10\n", True),
            ("micro_batch_size: 2\nsequence_len: 1000\npad_to_sequence_len: true\npad_to_multiple_of: 8\n", False),
            ("pad_to_multiple_of: 8\n", True),
            ("pad_to_sequence_len: false\nfp8_config:\n  recipe: rowwise_with_gw_hp\n", False),
        ],
    )
    def test_token_counts(self, text, fires):
        assert bool(judge("fp8-length-not-divisible", "fp8: true\n" + text)) is fires

    def test_all_gather_wants_the_fsdp_version_at_the_top(self):
        text = "fp8: true\nfp8_enable_fsdp_float8_all_gather: true\nfsdp_config:\n  fsdp_version: 2\n"
        assert judge("fp8-all-gather-without-fsdp2", text) == []
        found = only(judge("fp8-all-gather-without-fsdp2", text, versions=OLD))
        assert apply_edits(parse_document("t.yml", text.encode()), found.fix.edits).text == f"{text}fsdp_version: 2\n"
        assert judge("fp8-all-gather-without-fsdp2", f"{text}fsdp_version: 2\n", versions=OLD) == []


class TestAllocator:
    def message(self, env=None, **target):
        found = judge("allocator-not-expandable", BASE, env, **target)
        assert all(finding.key is None and finding.fix is None for finding in found)
        return found[0].message if found else None

    @pytest.mark.parametrize("torch", ["2.2", "2.8", "2.10", "2.11", "2.13"])
    def test_silent_where_the_axolotl_command_works(self, torch):
        assert self.message(torch=torch) is None

    def test_torch_2_9_ignores_the_variable(self):
        message = self.message(torch="2.9")
        assert "PYTORCH_ALLOC_CONF" in message
        assert message.endswith("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        assert (
            self.message({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, torch="2.9") is None
        )  # Axolotl adds the other

    def test_own_variable_wins(self):
        message = self.message({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, torch="2.11")
        assert "overrides what Axolotl sets" in message
        # The line must change the variable that wins, not the one that loses.
        assert message.endswith("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")

    def test_a_variable_set_to_nothing_still_wins(self):
        assert "PYTORCH_CUDA_ALLOC_CONF=''" in self.message({"PYTORCH_CUDA_ALLOC_CONF": ""}, torch="2.11")

    def test_max_split_contradicts(self):
        env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512"}
        assert "max_split_size_mb:512" in self.message(env, torch="2.11")

    def test_module_launcher_bypasses_the_command(self):
        message = self.message(torch="2.11", launcher="module")
        assert "bypasses the Axolotl command" in message
        assert message.endswith("export PYTORCH_ALLOC_CONF=expandable_segments:True")
        env = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        assert self.message(env, torch="2.11", launcher="module") is None

    def test_old_torch_gets_no_variable(self):
        rule = explain("allocator-not-expandable")
        target = make_target(env={}, look_around=False)
        old = replace(target.stack.releases["torch"], version="2.1.0")
        target = replace(target, stack=Stack(releases={**target.stack.releases, "torch": old}))
        report = check_document(parse_document("t.yml", BASE.encode()), target, [rule])
        assert "sets no allocator variable for torch 2.1" in only(report.findings).message

    def test_forced_settings(self):
        assert "--alloc-conf ''" in self.message(torch="2.11", alloc_conf="")
        assert self.message(torch="2.9", alloc_conf="expandable_segments:True") is None

    def test_other_allocator_and_refused_settings(self):
        env = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
        assert "backend:cudaMallocAsync" in self.message(env, torch="2.11")
        assert "refuses" in self.message({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:yes"}, torch="2.11")

    def test_it_says_whose_variable_is_ignored(self):
        sets = only(judge("allocator-not-expandable", BASE, torch="2.9"))
        assert "the only variable that Axolotl sets for it" in sets.message
        found = only(
            judge(
                "allocator-not-expandable",
                BASE,
                {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
                torch="2.8",
                launcher="module",
            )
        )
        assert "the only variable that is set" in found.message


class TestAdapters:
    def test_4bit_lora_costs_by_what_prepares_the_model(self):
        text = f"{BASE}adapter: lora\nload_in_4bit: true\n"
        assert "4 bytes" in only(judge("lora-4bit-not-qlora", text)).message
        zero3 = text + "deepspeed: deepspeed_configs/zero3.json\n"
        assert "2 bytes" in only(judge("lora-4bit-not-qlora", zero3, gpus=2)).message
        assert judge("lora-4bit-not-qlora", text + "quantize_moe_experts: true\n") == []
        assert judge("lora-4bit-not-qlora", text.replace("Llama-3.2-1B", "Llama-3.2-1B-bnb-4bit")) == []

    def test_quantised_base_without_adapter(self):
        bare = only(judge("quantized-without-adapter", BASE + "load_in_8bit: true\n"))
        assert bare.fix.edits[0].value is False
        assert only(judge("quantized-without-adapter", BASE + "gptq: true\n")).fix.edits[0].value == "lora"
        assert judge("quantized-without-adapter", BASE + "load_in_8bit: false\n") == []

    @pytest.mark.parametrize(
        ("adapter", "hint"),
        [("lroa", "did you mean"), ("dora", "peft_use_dora"), ("None", "remove the key"), ("ia3", "supported are")],
    )
    def test_unknown_adapter_hints(self, adapter, hint):
        assert hint in only(judge("unknown-adapter", f"adapter: {adapter}\n")).message

    def test_adapters_of_plugins(self):
        assert "MoraPlugin" in only(judge("unknown-adapter", "adapter: mora\n")).message
        assert judge("unknown-adapter", "adapter: mora\nplugins: [axolotl.integrations.mora.MoraPlugin]\n") == []
        assert judge("unknown-adapter", "adapter: mine\nplugins: [my_package.MyPlugin]\n") == []

    def test_every_missing_lora_setting_is_named(self):
        found = judge("lora-without-rank", f"{BASE}adapter: qlora\nload_in_4bit: true\n")
        assert [finding.key for finding in found] == ["lora_r", "lora_alpha", "lora_target_modules"]
        assert judge("lora-without-rank", f"{BASE}adapter: lora\nlora_model_dir: ./out\n") == []
        assert judge("lora-without-rank", BASE) == []

    def test_fixing_every_missing_setting(self):
        text = f"{BASE}adapter: lora\n"
        document = parse_document("t.yml", text.encode())
        for found in judge("lora-without-rank", text):
            document = apply_edits(document, found.fix.edits)
        assert document.values == {
            "base_model": "meta-llama/Llama-3.2-1B",
            "adapter": "lora",
            "lora_r": 16,
            "lora_alpha": 32,
            "lora_target_linear": True,
        }

    def test_qlora_cases_are_reported_at_once(self):
        found = judge("qlora-quantization-mismatch", "adapter: qlora\nload_in_8bit: true\ngptq: true\n")
        assert [finding.key for finding in found] == ["load_in_8bit", "gptq"]
        assert only(judge("qlora-quantization-mismatch", "adapter: qlora\n")).key == "load_in_4bit"
        assert judge("qlora-quantization-mismatch", "adapter: lora\nload_in_8bit: true\n") == []

    def test_kernels_by_sharding(self):
        text = LORA + "lora_o_kernel: true\nfsdp_version: {}\nfsdp_config:\n  offload_params: false\n"
        assert only(judge("lora-kernels-unsupported", text.format(1), gpus=2, versions=OLD)).key == "lora_o_kernel"
        assert judge("lora-kernels-unsupported", text.format(1), versions=OLD) == []
        assert judge("lora-kernels-unsupported", text.format(2), gpus=2) == []

    def test_a_stored_format_wants_lora_not_qlora(self):
        text = "adapter: qlora\nload_in_4bit: true\nmodel_quantization_config: Mxfp4Config\n"
        found = only(judge("prequantized-with-bitsandbytes", text))
        after = apply_edits(parse_document("t.yml", text.encode()), found.fix.edits).text
        assert after == "adapter: lora\nload_in_4bit: false\nmodel_quantization_config: Mxfp4Config\n"

    def test_training_all_weights_means_loading_them_unquantised(self):
        text = "use_onebitllms: true\nadapter: qlora\nload_in_4bit: true\n"
        found = only(judge("onebitllms-with-lora", text))
        after = apply_edits(parse_document("t.yml", text.encode()), found.fix.edits).text
        assert after == "use_onebitllms: true\nload_in_4bit: false\n"

    def test_experts_keep_a_target(self):
        text = "adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_target_linear: true\n"
        assert only(judge("quantize-moe-experts-misused", text)).fix is None

    def test_kernels_want_the_fsdp_version_at_the_top(self):
        text = f"{LORA}lora_o_kernel: true\nfsdp_config:\n  fsdp_version: 2\n"
        assert judge("lora-kernels-unsupported", text, gpus=2) == []
        found = only(judge("lora-kernels-unsupported", text, gpus=2, versions=OLD))
        assert found.severity is Severity.ERROR
        after = apply_edits(parse_document("t.yml", text.encode()), found.fix.edits).text
        assert after == f"{text}fsdp_version: 2\n"
        assert judge("lora-kernels-unsupported", after, gpus=2, versions=OLD) == []
        assert judge("lora-kernels-unsupported", text, gpus=1) == []


class TestFp32Embeddings:
    def found(self, text, **target):
        return judge("fp32-embeddings", BASE + text, **target)

    def test_unset_attention_means_sdpa(self):
        assert only(self.found("")).fix.edits[0].value == "flash_attention_2"

    @pytest.mark.parametrize(
        "text",
        [
            "adapter: lora\n",
            "flash_attention: true\n",
            "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n",
            "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n",
            "deepspeed: deepspeed_configs/zero1.json\n",
            "bf16: false\n",
        ],
    )
    def test_silent_where_they_are_cast_back_or_all_is_fp32(self, text):
        assert self.found(text, gpus=2) == []

    def test_old_flag_is_replaced(self):
        text = BASE + "sdp_attention: true\n"
        document = parse_document("t.yml", text.encode())
        fixed = apply_edits(document, only(judge("fp32-embeddings", text)).fix.edits)
        assert "sdp_attention" not in fixed.values
        assert fixed.values["attn_implementation"] == "flash_attention_2"


class TestOtherMethods:
    def test_new_tokens_have_one_finding(self):
        text = LORA + "tokens: [<a>, <b>]\n"
        saved = text + "lora_modules_to_save: [embed_tokens, lm_head]\n"
        rules = ("new-tokens-untrained", "new-tokens-train-embeddings", "modules-to-save-full-copies")
        assert [len(judge(rule, text)) for rule in rules] == [1, 0, 0]
        assert [len(judge(rule, saved)) for rule in rules] == [0, 1, 0]
        assert [len(judge(rule, LORA + "lora_modules_to_save: [lm_head]\n")) for rule in rules] == [0, 0, 1]
        assert [len(judge(rule, LORA + "special_tokens:\n  pad_token: <pad>\n")) for rule in rules] == [0, 0, 0]

    @pytest.mark.parametrize("rl", ["dpo", "kto", "simpo", "grpo"])
    def test_reference_model(self, rl):
        assert only(judge("reference-model-in-memory", f"{BASE}rl: {rl}\n"))
        assert judge("reference-model-in-memory", f"{LORA}rl: {rl}\n") == []
        assert judge("reference-model-in-memory", f"{BASE}rl: orpo\n") == []

    def test_reference_model_says_what_is_held_and_in_which_type(self):
        said = {
            rl: only(judge("reference-model-in-memory", f"{BASE}bf16: true\nrl: {rl}\n")).message
            for rl in ("dpo", "kto", "simpo")
        }
        assert "as reference: 2 more bytes" in said["dpo"]
        assert "as reference: 4 more bytes" in said["kto"]
        assert "as reference" not in said["simpo"]
        assert "loads one that is not used" in said["simpo"]

    def test_quantize_moe_experts_reports_every_lack(self):
        assert len(judge("quantize-moe-experts-misused", "quantize_moe_experts: true\nlora_target_linear: true\n")) == 3
        text = "quantize_moe_experts: true\nadapter: lora\nload_in_8bit: true\n"
        assert judge("quantize-moe-experts-misused", text, gpu="h100") == []
        assert "only on CUDA" in only(judge("quantize-moe-experts-misused", text, gpu="mi300x")).message

    def test_qat_with_an_adapter_only_warns(self):
        text = "qat:\n  weight_dtype: int4\n"
        assert only(judge("qat-with-adapter-or-quantization", text + "adapter: lora\n")).severity is Severity.WARNING
        assert "2.5" in only(judge("qat-with-adapter-or-quantization", text, torch="2.5", versions=OLD)).message
        assert judge("qat-with-adapter-or-quantization", text) == []

    def test_relora_lists_what_is_wrong(self):
        found = judge("relora-misused", "relora: true\ndeepspeed: deepspeed_configs/zero1.json\n", gpus=2)
        assert len(found) == 3

    def test_kernel_keys_without_the_plugin_are_dropped(self):
        text = "use_scattermoe: true\nuse_sonicmoe: true\nnvfp4_merge_aware: true\n"
        assert judge("moe-kernel-conflict", text) == []
        assert judge("nvfp4-merge-aware-misused", text) == []
        assert only(judge("moe-kernel-conflict", KERNELS + text)).severity is Severity.ERROR

    @pytest.mark.parametrize(
        ("text", "severity"),
        [
            ("expert_backend: fast\n", Severity.ERROR),
            ("expert_backend: eager\nuse_sonicmoe: true\n", Severity.ERROR),
            ("experts_implementation: sonicmoe\n", Severity.WARNING),
            ("experts_implementation: loop\n", Severity.WARNING),
            ("nonexpert_quantization: int3\n", Severity.ERROR),
        ],
    )
    def test_moe_kernel_choices(self, text, severity):
        assert only(judge("moe-kernel-conflict", KERNELS + text)).severity is severity
        assert (
            judge("moe-kernel-conflict", KERNELS + "expert_backend: SonicMoE\nexperts_implementation: sonicmoe\n") == []
        )

    @pytest.mark.parametrize(("start", "fires"), [("10", False), ("0.1", False), ("1.5", True), ("-1", True)])
    def test_nvfp4_start_step(self, start, fires):
        text = f"{KERNELS}adapter: lora\nuse_sonicmoe: true\nnvfp4_merge_aware: true\n"
        text += f"nvfp4_merge_aware_start_step: {start}\n"
        assert bool(judge("nvfp4-merge-aware-misused", text)) is fires

    def test_better_transformer_meets_the_default_bf16(self):
        found = judge("better-transformer-misused", BASE + "flash_optimum: true\n")
        assert [finding.severity for finding in found] == [Severity.ERROR, Severity.WARNING]
        assert "auto (the default)" in found[0].message

    def test_ple_offload_on_several_gpus(self):
        text = "adapter: lora\nload_in_8bit: true\nple_cpu_offload: true\n"
        assert judge("ple-offload-misused", text) == []
        assert only(judge("ple-offload-misused", text, gpus=2)).severity is Severity.WARNING

    def test_layer_offloading_helps_a_partly_frozen_model(self):
        assert (
            judge("layer-offloading-without-adapter", "layer_offloading: true\nunfrozen_parameters: [lm_head]\n") == []
        )

    def test_liger_dpo_uses_the_first_loss_only(self):
        text = "rl: dpo\ndpo_use_liger_kernel: true\ndpo_loss_type: [sigmoid, ipo]\n"
        assert judge("dpo-liger-loss-unsupported", text) == []
        assert (
            only(judge("dpo-liger-loss-unsupported", text, versions=("axolotl==0.20.0",))).severity is Severity.WARNING
        )
