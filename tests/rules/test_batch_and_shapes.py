"""The rules about batches, shapes and eval schedules: their cases, where they stay silent, what their fixes write."""

import pytest
from judging import fixed, judge, messages, severities

from vramwise.rules.eval import eval_batch_differs
from vramwise.rules.shapes import unpadded_sequences
from vramwise.trainers.axolotl.rules.batch import batch_key_null, batch_size_set
from vramwise.trainers.axolotl.rules.config import save_schedule_conflict
from vramwise.trainers.axolotl.rules.eval import (
    early_stopping_without_steps,
    eval_never_scheduled,
    eval_schedule_conflict,
    val_set_with_test_datasets,
)


class TestBatchSizeSet:
    def test_says_what_happens_with_the_arithmetic(self):
        [message] = messages(batch_size_set, "micro_batch_size: 1\nbatch_size: 8\n", gpus=2)
        assert "accumulation at 1" in message
        assert "micro 1 × gpus 2 = 2 samples" in message
        assert "planned for 8 × 2 = 16" in message
        assert "1/8 of the data" in message
        assert "8 / micro 1 / gpus 2 = 4" in message

    def test_max_steps_fixes_the_length_so_no_share_is_named(self):
        [message] = messages(batch_size_set, "micro_batch_size: 1\nbatch_size: 8\nmax_steps: 10\n")
        assert "of the data" not in message

    def test_fix_keeps_the_batch(self):
        text, safe = fixed(batch_size_set, "micro_batch_size: 2\nbatch_size: 32\n", gpus=2)
        assert text == "micro_batch_size: 2\ngradient_accumulation_steps: 8\n"
        assert safe

    def test_not_divisible_offers_the_nearest(self):
        text, safe = fixed(batch_size_set, "micro_batch_size: 3\nbatch_size: 32\n")
        assert text == "micro_batch_size: 3\ngradient_accumulation_steps: 11\n"
        assert not safe
        [message] = messages(batch_size_set, "micro_batch_size: 3\nbatch_size: 32\n")
        assert "10.67, not a whole number; use 10 (batch 30) or 11 (batch 33)" in message

    def test_batch_smaller_than_one_step(self):
        [message] = messages(batch_size_set, "micro_batch_size: 4\nbatch_size: 4\n", gpus=2)
        assert message.endswith("0.50, not a whole number; use 1 (batch 8)")

    @pytest.mark.parametrize(("batch", "sign", "safe"), [(32, "≠", False), (24, "=", True)])
    def test_both_set_is_refused(self, batch, sign, safe):
        text = f"micro_batch_size: 4\ngradient_accumulation_steps: 2\nbatch_size: {batch}\n"
        _, [found] = judge(batch_size_set, text, gpus=3)
        assert found.severity.value == "error"
        assert found.message.endswith(f"batch_size {batch}; micro 4 × accumulation 2 × gpus 3 = 24 {sign} {batch}")
        after, is_safe = fixed(batch_size_set, text, gpus=3)
        assert after == "micro_batch_size: 4\ngradient_accumulation_steps: 2\n"
        assert is_safe is safe

    def test_alone_is_refused(self):
        assert severities(batch_size_set, "batch_size: 8\n") == ["error"]
        text, safe = fixed(batch_size_set, "batch_size: 8\n", gpus=2)
        assert text == "gradient_accumulation_steps: 4\nmicro_batch_size: 1\n"
        assert safe

    def test_explicit_null_divides_without_the_gpus(self):
        text = "micro_batch_size: 1\ngradient_accumulation_steps: null\nbatch_size: 8\n"
        [message] = messages(batch_size_set, text, gpus=2)
        assert "8 // micro 1 = 8 on each rank: effective batch 16" in message
        assert fixed(batch_size_set, text, gpus=2)[1] is False
        assert fixed(batch_size_set, text) == ("micro_batch_size: 1\ngradient_accumulation_steps: 8\n", True)

    def test_counts_data_parallel_ranks(self):
        text = "micro_batch_size: 1\nbatch_size: 8\ntensor_parallel_size: 2\n"
        [message] = messages(batch_size_set, text, gpus=4)
        assert "8 / micro 1 / data-parallel ranks 2 (of 4 gpus) = 4" in message

    def test_silent_without_it(self):
        assert messages(batch_size_set, "micro_batch_size: 1\nbatch_size: null\n") == []


class TestBatchKeyNull:
    def test_both_keys_are_reported(self):
        assert len(messages(batch_key_null, "micro_batch_size:\ngradient_accumulation_steps:\n")) == 2

    def test_left_out_or_with_batch_size_is_another_matter(self):
        assert messages(batch_key_null, "sequence_len: 512\n") == []
        assert messages(batch_key_null, "batch_size: 8\nmicro_batch_size: 1\ngradient_accumulation_steps:\n") == []


class TestEvalBatchDiffers:
    BAD = "micro_batch_size: 4\neval_batch_size: 16\nval_set_size: 0.05\nevals_per_epoch: 2\n"

    def test_fires_and_is_fixed(self):
        assert fixed(eval_batch_differs, self.BAD) == (self.BAD.replace("16", "4"), True)

    @pytest.mark.parametrize(
        "change",
        [
            ("val_set_size: 0.05", "val_set_size: 0"),
            ("eval_batch_size: 16", "eval_batch_size: 4"),
            ("eval_batch_size: 16\n", ""),
            ("evals_per_epoch: 2", "evals_per_epoch: 2\nsample_packing: true"),
        ],
    )
    def test_silent(self, change):
        assert messages(eval_batch_differs, self.BAD.replace(*change)) == []

    def test_unpacked_eval_beside_packed_training_counts(self):
        text = self.BAD + "sample_packing: true\neval_sample_packing: false\n"
        assert len(messages(eval_batch_differs, text)) == 1

    def test_test_datasets_count_as_eval_data(self):
        text = self.BAD.replace("val_set_size: 0.05", "test_datasets:\n  - path: test.jsonl")
        assert len(messages(eval_batch_differs, text)) == 1


class TestUnpaddedSequences:
    @pytest.mark.parametrize(
        "text",
        [
            "sequence_len: 2048\n",
            "sequence_len: 2048\npad_to_sequence_len: false\n",
            "sequence_len: 2048\nsample_packing: true\npad_to_sequence_len: false\n",
            "sequence_len: 2048\nreward_model: true\npad_to_sequence_len: false\n",
            "micro_batch_size: 4\n",
        ],
    )
    def test_fires_and_padding_mends_it(self, text):
        after, safe = fixed(unpadded_sequences, text, launcher="module")
        assert "pad_to_sequence_len: true\n" in after
        assert safe == ("sample_packing: true" in text)  # full rows may not fit, and nothing is predicted here
        assert severities(unpadded_sequences, text, launcher="module") == ["warning"]
        assert "padding" in messages(unpadded_sequences, text, launcher="module")[0]

    @pytest.mark.parametrize(
        "text",
        [
            "sample_packing: true\n",
            "pad_to_sequence_len: true\n",
            "reward_model: true\n",
            "rl: dpo\n",
            "pretraining_dataset:\n  - path: allenai/c4\nmax_steps: 10\n",
            "processor_type: AutoProcessor\n",
            "batch_flattening: true\nattn_implementation: flash_attention_2\nmicro_batch_size: 4\n",
        ],
    )
    def test_silent(self, text):
        assert messages(unpadded_sequences, text) == []

    def test_informs_and_edits_nothing_where_segments_grow(self):
        """Padding brings 32.4 GiB to 32.3 there, and may make a run of short samples too large."""
        _, [soft] = judge(unpadded_sequences, "sequence_len: 2048\n", torch="2.11")
        _, [hard] = judge(unpadded_sequences, "sequence_len: 2048\n", torch="2.11", launcher="module")
        assert (soft.severity.value, soft.fix) == ("info", None)
        assert "padding would save nothing" in soft.message
        assert "rounded up to 64" in soft.message
        assert (hard.severity.value, hard.fix.safe) == ("warning", False)
        assert "expandable" not in hard.message


class TestEvalSchedules:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("val_set_size: 0.1\n", ["info"]),
            ("test_datasets:\n  - path: t\n", ["info"]),
            ("val_set_size: 0.1\nevals_per_epoch: 1\n", ["info"]),
            ("val_set_size: 0.1\nevals_per_epoch: 1\nnum_epochs: 0.5\n", ["info"]),
            ("val_set_size: 0.1\nevals_per_epoch: 1\nnum_epochs: 2\n", []),
            ("val_set_size: 0.1\nevals_per_epoch: 1\neval_strategy: steps\n", []),
            ("val_set_size: 0.1\nevaluation_strategy: epoch\n", []),
            ("val_set_size: 0.1\neval_strategy: 'no'\n", []),
            ("val_set_size: 0\n", []),
        ],
    )
    def test_never_scheduled(self, text, expected):
        assert severities(eval_never_scheduled, text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("val_set_size: 0.1\neval_strategy: epoch\neval_steps: 5\n", ["error"]),
            ("val_set_size: 0.1\nevaluation_strategy: epoch\neval_steps: 5\n", ["error"]),
            ("val_set_size: 0.1\neval_strategy: epoch\nevals_per_epoch: 2\n", ["error"]),
            ("val_set_size: 0\neval_steps: 5\n", ["error"]),
            ("val_set_size: 0\nevals_per_epoch: 5\n", ["info"]),
            ("eval_steps: 5\n", ["info"]),
            ("val_set_size: 0\neval_strategy: 'no'\n", []),
            ("val_set_size: 0\neval_steps: 5\ntest_datasets:\n  - path: t\n", []),
            ("val_set_size: 0.1\ndo_bench_eval: true\n", ["error"]),
            ("do_bench_eval: true\nevals_per_epoch: 2\n", ["warning"]),
        ],
    )
    def test_conflicts(self, text, expected):
        assert severities(eval_schedule_conflict, text) == expected

    def test_all_cases_at_once(self):
        text = "val_set_size: 0.1\neval_strategy: epoch\neval_steps: 5\nevals_per_epoch: 2\n"
        assert severities(eval_schedule_conflict, text) == ["error", "error"]

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("save_strategy: steps\nsave_steps: 5\n", 0),
            ("save_strategy: best\n", 1),
            ("save_strategy: best\nmetric_for_best_model: eval_loss\n", 0),
            ("saves_per_epoch: 1\nsave_steps: 5\nsave_strategy: 'no'\n", 2),
        ],
    )
    def test_saves(self, text, count):
        assert severities(save_schedule_conflict, text) == ["error"] * count

    def test_early_stopping_names_the_remainder(self):
        [message] = messages(
            early_stopping_without_steps, "early_stopping_patience: 3\nsave_steps: 70\neval_steps: 50\n"
        )
        assert "save_steps 70 is not a multiple of eval_steps 50 (remainder 20)" in message

    def test_early_stopping_replaces_the_rival_schedule(self):
        text = "early_stopping_patience: 3\neval_steps: 50\nsaves_per_epoch: 2\n"
        after, safe = fixed(early_stopping_without_steps, text)
        assert after == "early_stopping_patience: 3\neval_steps: 50\nsave_steps: 50\n"
        assert not safe

    def test_streams_cannot_be_split(self):
        assert severities(val_set_with_test_datasets, "streaming: true\nval_set_size: 0.1\n") == ["error"]
        assert severities(val_set_with_test_datasets, "val_set_size: 0.1\n") == []
