"""The rules about the file itself: unknown, removed, renamed and mistyped keys, and plugins."""

import pytest

from opened import check_document, make_target
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.trainers.axolotl.rules.config import (
    number_as_string,
    refused_combination,
    stream_without_max_steps,
    torch_too_old,
    wrong_type,
)
from vramwise.trainers.axolotl.rules.config_keys import (
    deprecated_key,
    plugin_key_without_plugin,
    removed_key,
    unknown_key,
    unknown_plugin,
)

LIGER = "axolotl.integrations.liger.LigerPlugin"


OLD = ("axolotl==0.19.0",)


def judge(rule, text, versions=()):
    document = parse_document("config.yml", text.encode())
    target = make_target(env={}, look_around=False, versions=versions)
    return document, check_document(document, target, [rule]).findings


def found_keys(rule, text, versions=()):
    return {found.key: found.severity.value for found in judge(rule, text, versions)[1]}


def fixed(rule, text):
    """The text after the fixes of all findings, and whether all of them are safe."""
    document, findings = judge(rule, text)
    for found in findings:
        document = apply_edits(document, found.fix.edits)
    return document.text, all(found.fix.safe for found in findings)


class TestUnknownKey:
    def test_typo_is_renamed_in_place(self):
        text = "a_base: 1\ncontext_parapllel_size: 2  # cp\nmicro_batch_size: 1\n"
        document, findings = judge(unknown_key, text)
        typo = next(found for found in findings if found.key == "context_parapllel_size")
        assert typo.message.endswith("did you mean context_parallel_size?")
        assert typo.place.line == 2
        assert not typo.fix.safe
        after = apply_edits(document, typo.fix.edits).text
        assert "context_parallel_size: 2  # cp\n" in after
        assert "parapllel" not in after

    def test_no_rename_onto_a_key_that_is_there(self):
        _, [found] = judge(unknown_key, "micro_batch_sise: 2\nmicro_batch_size: 1\n")
        assert found.fix is None

    def test_names_of_other_trainers(self):
        after, safe = fixed(unknown_key, "per_device_train_batch_size: 4\n")
        assert after == "micro_batch_size: 4\n"
        assert not safe

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("qqqq_zzzz: 1\n", {"qqqq_zzzz": "warning"}),
            ("qqqq_zzzz:\n", {"qqqq_zzzz": "info"}),
            ("qqqq_zzzz: 1\nplugins:\n  - my_package.MyPlugin\n", {"qqqq_zzzz": "info"}),
            (f"qqqq_zzzz: 1\nplugins:\n  - {LIGER}\n", {"qqqq_zzzz": "warning"}),
            ("fsdp_config:\n  ofload_params: true\n", {"fsdp_config.ofload_params": "warning"}),
            ("fsdp_config:\n  fsdp_limit_all_gathers: true\n", {"fsdp_config.fsdp_limit_all_gathers": "info"}),
            ("fp8: true\nfp8_config:\n  recipee: rowwise\n", {"fp8_config.recipee": "error"}),
            ("fsdp_config:\n  fsdp_offload_params: true\n", {}),
            ("x-defaults: &d\n  a: 1\n_shared: 2\n", {}),
            ("model_type: LlamaForCausalLM\nliger_rope: true\nunsloth_rope: true\n", {}),
            ("trl:\n  num_generation: 2\n", {"trl.num_generation": "warning"}),
        ],
    )
    def test_cases(self, text, expected):
        assert found_keys(unknown_key, text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("fsdp_config:\n  sharding_strategy: SHARD_GRAD_OP\n", {"fsdp_config.sharding_strategy": "warning"}),
            ("fsdp_config:\n  fsdp_limit_all_gathers: true\n", {"fsdp_config.fsdp_limit_all_gathers": "info"}),
            ("fsdp: []\n", {}),
        ],
    )
    def test_cases_in_0_19(self, text, expected):
        assert found_keys(unknown_key, text, OLD) == expected

    def test_a_key_of_a_later_version_says_since_when(self):
        _, [found] = judge(unknown_key, "eval_on_start: false\n", OLD)
        assert found.message == "eval_on_start was added in Axolotl 0.21: Axolotl 0.19 drops it without warning"
        assert found_keys(unknown_key, "eval_on_start: false\n") == {}

    def test_a_key_that_is_gone_says_so(self):
        [found] = judge(unknown_key, "fsdp: []\n")[1]
        assert found.severity.value == "info"
        assert "no longer a key of Axolotl 0.21" in found.message

    def test_keys_of_built_in_plugins_need_no_listing(self):
        text = "expert_parallel_size: 2\ncontext_parallel:\n  size: 2\n"
        assert found_keys(plugin_key_without_plugin, text) == {}
        assert found_keys(plugin_key_without_plugin, "expert_parallel_size: 2\n", OLD) == {
            "expert_parallel_size": "warning"
        }


class TestPlugins:
    def test_appended_to_the_list(self):
        other = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
        after, safe = fixed(plugin_key_without_plugin, f"plugins:\n  - {other}\nliger_rope: true\n")
        assert after == f"plugins:\n  - {other}\n  - {LIGER}\nliger_rope: true\n"
        assert not safe

    def test_one_finding_for_each_plugin(self):
        text = "liger_rope: true\nliger_rms_norm: true\nliger_layer_norm: false\ncut_cross_entropy: true\n"
        _, findings = judge(plugin_key_without_plugin, text)
        assert [found.key for found in findings] == ["liger_rope", "cut_cross_entropy"]
        assert findings[0].message.startswith("liger_rope and liger_rms_norm are dropped")

    @pytest.mark.parametrize(
        "text",
        [
            "liger_rope: false\ncut_cross_entropy:\n",
            "plugins:\n  - liger.LigerPlugin\nliger_rope: true\n",
            f"plugins:\n  - {LIGER}\nliger_rope: true\n",
        ],
    )
    def test_silent(self, text):
        assert found_keys(plugin_key_without_plugin, text) == {}

    @pytest.mark.parametrize(
        ("plugin", "severity"),
        [
            ("axolotl.integrations.ligr.LigerPlugin", "error"),
            ("axolotl.integrations.liger.Liger", "error"),
            ("liger", "error"),
            ("my_package.plugins.Mine", None),
            ("liger.LigerPlugin", None),
        ],
    )
    def test_unknown_plugin(self, plugin, severity):
        expected = {} if severity is None else {"plugins.0": severity}
        assert found_keys(unknown_plugin, f"plugins:\n  - {plugin}\n") == expected

    def test_since_0_21_a_class_may_follow_a_colon(self):
        text = "plugins:\n  - mine:Plugin\n  - axolotl.integrations.liger:LigerPlugin\nliger_rope: true\n"
        assert found_keys(unknown_plugin, text) == found_keys(plugin_key_without_plugin, text) == {}
        assert found_keys(unknown_plugin, text, OLD)["plugins.0"] == "error"

    def test_up_to_0_20_a_module_that_is_missing_is_dropped(self):
        text = "plugins:\n  - axolotl.integrations.ligr.LigerPlugin\n"
        assert found_keys(unknown_plugin, text, ("axolotl==0.20.0",)) == {"plugins.0": "warning"}

    def test_unknown_plugin_is_replaced(self):
        after, _ = fixed(unknown_plugin, "plugins:\n  - axolotl.integrations.ligr.LigerPlugin\n")
        assert after == f"plugins:\n  - {LIGER}\n"


class TestTypes:
    @pytest.mark.parametrize(
        ("text", "after", "safe"),
        [
            ("eval_strategy: no\n", 'eval_strategy: "no"\n', True),
            ("wandb_name: 12\n", 'wandb_name: "12"\n', True),
            ("warmup_steps: 0.1\n", "warmup_ratio: 0.1\n", False),
            ("output_dir:\nbf16: auto\n", "bf16: auto\n", True),
            ("tokens:\n  pad_token: <p>\n", "special_tokens:\n  pad_token: <p>\n", False),
        ],
    )
    def test_clear_cases_are_mended(self, text, after, safe):
        written, is_safe = fixed(wrong_type, text)
        assert parse_document("", written.encode()).values == parse_document("", after.encode()).values
        assert is_safe is safe

    @pytest.mark.parametrize(
        "text",
        ["micro_batch_size: many\n", "fsdp_config:\n  offload_params: perhaps\n", "bf16: full\n", "base_model:\n"],
    )
    def test_unclear_cases_are_only_reported(self, text):
        _, [found] = judge(wrong_type, text)
        assert found.severity.value == "error"
        assert found.fix is None
        assert "takes" in found.message

    @pytest.mark.parametrize(
        "text", ["micro_batch_size: '8'\n", "bf16: 'true'\n", "learning_rate: 5e-5\n", "liger_rope: x\n"]
    )
    def test_what_the_schema_converts_or_never_sees_passes(self, text):
        assert found_keys(wrong_type, text) == {}

    @pytest.mark.parametrize(
        ("text", "after"),
        [
            ("learning_rate: 5e-5 # lr\n", 5e-5),
            ("learning_rate: '2e-4'\n", 2e-4),
            ("micro_batch_size: '8'\n", 8),
        ],
    )
    def test_number_as_string(self, text, after):
        written, safe = fixed(number_as_string, text)
        assert list(parse_document("", written.encode()).values.values()) == [after]
        assert safe

    def test_number_as_string_in_a_mapping_that_is_handed_on(self):
        text = "lr_scheduler_kwargs:\n  min_lr: 1e-6\n  name: x\n"
        assert found_keys(number_as_string, text) == {"lr_scheduler_kwargs.min_lr": "warning"}

    def test_text_that_is_meant_as_text(self):
        assert found_keys(number_as_string, "wandb_name: '12'\nbase_model: '7'\ngpu_memory_limit: '20'\n") == {}


class TestOldKeys:
    @pytest.mark.parametrize(
        ("text", "after", "safe"),
        [
            ("unsloth_lora_qkv: true\n", "lora_qkv_kernel: true\n", True),
            ("save_safetensors: false\nbf16: auto\n", "bf16: auto\n", True),
            ("dpo_norm_loss: false\nbf16: auto\n", "bf16: auto\n", True),
            ("rpo_alpha: 1.0\nbf16: auto\n", "bf16: auto\n", False),
            ("max_packed_sequence_len: 2048\n", "sequence_len: 2048\nsample_packing: true\n", False),
            (
                "rope_scaling:\n  type: linear\n",
                "overrides_of_model_config:\n  rope_scaling:\n    type: linear\n",
                True,
            ),
            (
                "datasets:\n  - path: x\n    type: sharegpt\n",
                "datasets:\n  - path: x\n    type: chat_template\n",
                False,
            ),
        ],
    )
    def test_removed(self, text, after, safe):
        assert set(found_keys(removed_key, text).values()) == {"error"}
        written, is_safe = fixed(removed_key, text)
        assert parse_document("", written.encode()).values == parse_document("", after.encode()).values
        assert is_safe is safe

    @pytest.mark.parametrize(
        "text",
        ["flash_attn_rms_norm: false\n", "max_packed_sequence_len:\n", "rpo_alpha:\n", "save_safetensors: true\n"],
    )
    def test_removed_but_off(self, text):
        assert found_keys(removed_key, text) == {}

    @pytest.mark.parametrize(
        ("text", "after"),
        [
            ("evaluation_strategy: steps\n", "eval_strategy: steps\n"),
            ("gc_steps: 10\n", "torch_empty_cache_steps: 10\ngc_collect_steps: 10\n"),
            ("gc_steps: -1\n", "gc_collect_steps: -1\n"),
            ("gradient_checkpointing: offload\n", "gradient_checkpointing: true\nactivation_offloading: true\n"),
            ("sequence_parallel_degree: 2\n", "context_parallel_size: 2\n"),
            (
                "fsdp_config:\n  fsdp_offload_params: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2\n",
                "fsdp_config:\n  offload_params: true\n  state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2\n",
            ),
            ("flash_attn_d512: true\n", "large_head_attention: auto\n"),
            ("dataset_processes: 4\ndataset_num_proc: 8\n", "dataset_num_proc: 8\n"),
        ],
    )
    def test_deprecated_is_rewritten_as_axolotl_maps_it(self, text, after):
        assert fixed(deprecated_key, text) == (after, True)

    def test_old_names_of_a_plugin_that_is_not_listed_are_not_read(self):
        text = "liger_swiglu: true\nliger_glu_activation: true\n"
        assert found_keys(deprecated_key, text) == {}
        assert found_keys(deprecated_key, f"plugins: [{LIGER}]\n{text}") == {"liger_swiglu": "error"}

    @pytest.mark.parametrize(
        ("text", "severity"),
        [
            ("evaluation_strategy: steps\n", "info"),
            ("evaluation_strategy: steps\neval_strategy: epoch\n", "warning"),
            ("noisy_embedding_alpha: 5\nneftune_noise_alpha: 5\n", "error"),
            ("pretrain_multipack_buffer_size: 10\nstreaming_multipack_buffer_size: 20\n", "error"),
            ("model_type: A\ntype_of_model: B\n", "warning"),
            ("fsdp_config:\n  fsdp_offload_params: true\n  offload_params: false\n", "warning"),
            ("fsdp_final_state_dict_type: FULL_STATE_DICT\n", "warning"),
            ("rl: ipo\n", "info"),
            ("pretraining_dataset:\n  - path: c4\n", "info"),
        ],
    )
    def test_deprecated_severity(self, text, severity):
        assert list(found_keys(deprecated_key, text).values()) == [severity]


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("dataset_exact_deduplication: true\nstreaming: true\n", "dataset_exact_deduplication"),
            ("peft_layers_pattern: [layers]\n", "peft_layers_pattern"),
            ("rl: simpo\nwarmup_ratio: 0.1\n", "warmup_ratio"),
            ("rl: dpo\ndpo_loss_type: [ipo]\ndpo_loss_weights: [1.0, 2.0]\n", "dpo_loss_weights"),
            ("dpo_loss_type: [ipo]\n", "dpo_loss_type"),
            ("tokenizer_use_mistral_common: true\ntokens: [x]\n", "tokens"),
            ("lora_target_modules: [q_proj, '(']\n", "lora_target_modules.1"),
            ("neftune_noise_alpha: 0\n", "neftune_noise_alpha"),
            ("scaling_softmax: true\nattn_implementation: sdpa\n", "scaling_softmax"),
        ],
    )
    def test_fires(self, text, key):
        assert found_keys(refused_combination, text) == {key: "error"}

    @pytest.mark.parametrize(
        "text",
        ["warmup_steps: 10\nwarmup_ratio: 0\n", "rl: dpo\ndpo_loss_type: [ipo]\n", "lora_target_modules: '('\n"],
    )
    def test_silent(self, text):
        assert found_keys(refused_combination, text) == {}

    def test_a_stream_needs_an_end(self):
        assert found_keys(stream_without_max_steps, "streaming: true\n") == {"streaming": "error"}
        assert found_keys(stream_without_max_steps, "streaming: true\nmax_steps: 5\n") == {}


class TestRemovedSince020:
    @pytest.mark.parametrize(
        ("text", "after", "safe"),
        [
            (
                "fsdp:\n  - full_shard\n  - auto_wrap\n",
                "fsdp_config:\n  reshard_after_forward: true\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
                False,
            ),
            (
                "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
                "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n  reshard_after_forward: false\n",
                True,
            ),
            (
                "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n  forward_prefetch:\n",
                "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n",
                True,
            ),
        ],
    )
    def test_fsdp1_is_refused_with_its_successor(self, text, after, safe):
        assert set(found_keys(removed_key, text).values()) == {"error"}
        assert fixed(removed_key, text) == (after, safe)
        assert found_keys(removed_key, text, OLD) == {}

    def test_names_without_an_equal_get_no_fix(self):
        [found] = judge(removed_key, "fsdp_config:\n  sharding_strategy: NO_SHARD\n")[1]
        assert found.fix is None

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("use_dft: true\nrl: dpo\n", "use_dft"),
            ("use_eaft: true\nchunked_cross_entropy: true\n", "use_eaft"),
            ("lora_fp32_gradients: true\n", "lora_fp32_gradients"),
            ("torch_compile: true\ntorch_compile_regional: true\ngradient_checkpointing: true\n", "torch_compile_regional"),
            ("adapter: qlora\nload_in_4bit: true\nbnb_config_kwargs:\n  blocksize: 128\n", "bnb_config_kwargs"),
            ("nf4_backend: torchao\nadapter: qlora\nload_in_4bit: true\npeft_use_dora: true\n", "load_in_4bit"),
            (
                "adapter: qlora\nload_in_4bit: true\nlora_modules_to_save: [lm_head]\n"
                "fsdp_config:\n  cpu_ram_efficient_loading: true\n",
                "load_in_4bit",
            ),
            ("balance_labels: true\nrl: dpo\n", "balance_labels"),
            ("label_balance_window_optim_steps: 2\n", "label_balance_window_optim_steps"),
        ],
    )  # fmt: skip
    def test_newer_refusals(self, text, key):
        assert found_keys(refused_combination, text) == {key: "error"}
        assert found_keys(refused_combination, text, OLD) == {}

    @pytest.mark.parametrize(
        ("torch", "versions", "words"),
        [
            ("2.12", (), "Axolotl 0.21 requires torch 2.13 to before 2.15, but this is torch 2.12; Axolotl 0.19 supports it"),
            ("2.14", OLD, "Axolotl 0.19 requires torch 2.11 to 2.13.0, but this is torch 2.14; Axolotl 0.21 supports it"),
        ],
    )  # fmt: skip
    def test_torch_outside_the_range_of_the_release(self, torch, versions, words):
        document = parse_document("config.yml", b"base_model: x\n")
        target = make_target(torch=torch, versions=versions)
        [found] = check_document(document, target, [torch_too_old]).findings
        assert found.message == words
        assert found.severity.value == "warning"
        assert check_document(document, make_target(torch="2.14"), [torch_too_old]).findings == []
