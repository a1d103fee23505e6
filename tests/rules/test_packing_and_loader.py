"""The rules about packing, RL batches and the data loader: their cases, where they stay silent, what their fixes write."""

import pytest
from judging import fixed, messages, severities

from vramwise.rules.attention import packing_leaks_across_samples, packing_sdpa_bf16
from vramwise.trainers.axolotl.rules.attention import sdpa_varlen_ignored
from vramwise.trainers.axolotl.rules.batch import grpo_batch_not_divisible
from vramwise.trainers.axolotl.rules.eval import eval_packing_conflict
from vramwise.trainers.axolotl.rules.host import prefetch_host_memory, prefetch_without_workers
from vramwise.trainers.axolotl.rules.method import kto_unused_columns, packing_with_rl
from vramwise.trainers.axolotl.rules.shapes import batch_flattening_misused, cudagraphs_with_packing


class TestPacking:
    @pytest.mark.parametrize(
        ("text", "leaks"),
        [
            ("sample_packing: true\n", True),
            ("sample_packing: true\nattn_implementation: sdpa\n", False),
            ("sample_packing: true\nsdp_attention: true\n", False),
            ("sample_packing: true\nflash_attention: true\n", False),
            ("sample_packing: true\nattn_implementation: kernels-community/vllm-flash-attn3\n", True),
            ("sample_packing: true\nattn_implementation: kernels-community/flash-attn3@v1\n", False),
            ("sample_packing: false\n", False),
        ],
    )
    def test_leaks(self, text, leaks):
        assert bool(messages(packing_leaks_across_samples, text)) is leaks

    def test_an_old_card_is_offered_sdpa(self):
        after, _ = fixed(packing_leaks_across_samples, "sample_packing: true\n", gpu="t4")
        assert after == "sample_packing: true\nattn_implementation: sdpa\n"

    @pytest.mark.parametrize(("gpu", "count"), [("a100-80gb", 1), ("h100", 0), ("t4", 0)])
    def test_sdpa_bf16_depends_on_the_card(self, gpu, count):
        text = "sample_packing: true\nattn_implementation: sdpa\nbf16: auto\n"
        assert len(messages(packing_sdpa_bf16, text, gpu=gpu)) == count

    def test_sdpa_bf16_fix_replaces_the_old_flag(self):
        text = "sample_packing: true\nsdp_attention: true\nbf16: true\n"
        after, _ = fixed(packing_sdpa_bf16, text, gpu="a100-80gb")
        assert after == "sample_packing: true\nattn_implementation: flash_attention_2\nbf16: true\n"

    def test_kto_packs_neither_training_nor_eval(self):
        assert severities(packing_with_rl, "rl: kto\neval_sample_packing: true\n") == ["error"]
        assert severities(packing_with_rl, "rl: dpo\neval_sample_packing: true\n") == []

    def test_causal_lm_eval_needs_unpacked_rows_even_where_packing_is_inherited(self):
        assert severities(eval_packing_conflict, "sample_packing: true\ndo_causal_lm_eval: true\n") == ["error"]
        assert severities(eval_packing_conflict, "do_causal_lm_eval: true\n") == []
        assert severities(eval_packing_conflict, "eval_causal_lm_metrics: [bleu, ter]\n") == ["error"]

    def test_cudagraphs_without_compilation_are_another_rules_matter(self):
        text = "sample_packing: true\ntorch_compile_options:\n  triton.cudagraphs: true\n"
        assert messages(cudagraphs_with_packing, text) == []

    @pytest.mark.parametrize(
        ("text", "torch", "reason"),
        [
            ("sdpa_varlen: true\nattn_implementation: sdpa\n", "2.11", "sample_packing is off"),
            ("sdpa_varlen: true\nsample_packing: true\nattn_implementation: sdpa\n", "2.9", "torch 2.9"),
            ("sdpa_varlen: true\nsample_packing: true\nflash_attention: true\n", "2.11", "flash_attention_2"),
        ],
    )
    def test_sdpa_varlen(self, text, torch, reason):
        [message] = messages(sdpa_varlen_ignored, text, torch=torch)
        assert reason in message

    def test_flattening_reports_every_obstacle_and_auto_clears_them(self):
        text = "batch_flattening: true\nsample_packing: true\nmicro_batch_size: 1\n"
        assert severities(batch_flattening_misused, text) == ["error", "error", "warning"]
        assert messages(batch_flattening_misused, text.replace("flattening: true", "flattening: auto")) == []


class TestRlBatches:
    def test_grpo_on_several_gpus_needs_a_group_for_each(self):
        text = "rl: grpo\nmicro_batch_size: 4\ntrl:\n  num_generations: 4\n"
        assert messages(grpo_batch_not_divisible, text) == []
        assert messages(grpo_batch_not_divisible, text, gpus=2) == []  # since 0.21 the GPUs count: 4 × 2 = 8
        assert len(messages(grpo_batch_not_divisible, text.replace("size: 4", "size: 2"), gpus=2)) == 1
        old = {"gpus": 2, "versions": ("axolotl==0.20.0",)}
        [message] = messages(grpo_batch_not_divisible, text, **old)
        assert "= 4 < num_generations 4 × gpus 2 = 8" in message
        after, safe = fixed(grpo_batch_not_divisible, text, **old)
        assert "gradient_accumulation_steps: 2\n" in after
        assert not safe

    def test_grpo_explicit_generation_batch(self):
        text = "rl: grpo\ntrl:\n  num_generations: 4\n  generation_batch_size: 6\n"
        assert "generation_batch_size: 8\n" in fixed(grpo_batch_not_divisible, text)[0]

    def test_kto_columns_are_kept_by_skip_prepare(self):
        assert severities(kto_unused_columns, "rl: kto\nremove_unused_columns: true\n") == ["error"]
        assert messages(kto_unused_columns, "rl: kto\nskip_prepare_dataset: true\n") == []


class TestDataLoader:
    def test_text_speaks_up_above_a_gibibyte(self):
        small = "sequence_len: 8192\nmicro_batch_size: 4\n"
        assert messages(prefetch_host_memory, small) == []
        [message] = messages(prefetch_host_memory, small, gpus=8)
        # 8 × 8 × 256 × 4 × 8192 × 3 × 8 bytes
        assert "16,384 batches" in message
        assert "12.0 GiB" in message

    @pytest.mark.parametrize(("gpus", "expected"), [(8, "info"), (64, "warning")])
    def test_it_warns_where_a_host_would_feel_it(self, gpus, expected):
        """12 GiB for 8 GPUs are nothing; 768 GiB for 64 are 12 for each."""
        text = "sequence_len: 8192\nmicro_batch_size: 4\n"
        assert severities(prefetch_host_memory, text, gpus=gpus) == [expected]

    @pytest.mark.parametrize(
        ("model", "held"), [("mistralai/Voxtral-Mini-3B-2507", "sounds"), ("Qwen/Qwen2-VL-7B-Instruct", "images")]
    )
    def test_how_large_images_and_sounds_are_only_the_data_knows(self, model, held):
        text = f"base_model: {model}\nprocessor_type: AutoProcessor\n"
        [message] = messages(prefetch_host_memory, text)
        assert message.endswith(f"with all their {held}")
        assert severities(prefetch_host_memory, text) == ["info"]

    def test_any_loader_key_turns_the_defaults_off(self):
        text = "processor_type: AutoProcessor\ndataloader_pin_memory: false\n"
        assert messages(prefetch_host_memory, text) == []

    def test_prefetch_needs_a_worker(self):
        assert severities(prefetch_without_workers, "dataloader_prefetch_factor: 2\ndataloader_num_workers: 0\n") == [
            "error"
        ]
        assert messages(prefetch_without_workers, "dataloader_num_workers: 2\n") == []
