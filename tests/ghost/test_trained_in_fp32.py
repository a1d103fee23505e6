"""What trainers do that load in half precision and train in fp32, in part or through all logits: sizes by hand."""

from dataclasses import replace

import pytest

from opened import make_target, resolve
from vramwise.documents.document import parse_document
from vramwise.ghost.loops.batches import BatchShape
from vramwise.models.known import find_model
from vramwise.models.parameters import parameters
from vramwise.variants.batches import train_shapes
from vramwise.variants.lengths import parse_lengths
from vramwise.variants.prediction import predict_run

MIB = 1024**2
MODEL = replace(find_model("Qwen/Qwen2.5-0.5B-Instruct"), num_hidden_layers=4, vocab_size=32768)
ALL = sum(one.numel for one in parameters(MODEL))
IN_BLOCKS = sum(one.numel for one in parameters(MODEL) if one.layer is not None)
TOKENS, ROWS = 512, 2
BASE = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    f"dataset: identity\nbf16: true\ncutoff_len: {TOKENS}\nper_device_train_batch_size: {ROWS}\n"
)


def run_of(*lines, **words):
    written = {line.split(":")[0] for line in lines}
    kept = [line for line in BASE.splitlines() if line.split(":")[0] not in written]
    text = "\n".join([*kept, *lines]) + "\n"
    document = parse_document("config.yml", text.encode())
    return resolve(document, make_target(trainer="llamafactory", **words), "llamafactory")


def needs(*lines, **words):
    return predict_run(run_of(*lines, **words), MODEL).needs


def standing(*lines):
    """What is there all the time: gradients, too, in the second of two micro-steps."""
    report = needs("gradient_accumulation_steps: 2", *lines)
    return {name: report.breakdown_bytes[name] for name in ("weights", "gradients", "optimizer")}


def about(numel, each):
    return pytest.approx(numel * each, rel=0.01)


def test_a_full_fine_tune_in_bf16_takes_16_bytes_a_parameter():
    assert standing() == {"weights": about(ALL, 4), "gradients": about(ALL, 4), "optimizer": about(ALL, 8)}


def test_pure_bf16_takes_8():
    found = standing("pure_bf16: true", "bf16: false")
    assert found == {"weights": about(ALL, 2), "gradients": about(ALL, 2), "optimizer": about(ALL, 4)}


def test_of_some_blocks_only_those_are_wide():
    found = standing("finetuning_type: freeze", "freeze_trainable_layers: 1")
    one = IN_BLOCKS / 4
    assert found == {"weights": about(ALL + one, 2), "gradients": about(one, 4), "optimizer": about(one, 8)}


def test_frozen_blocks_below_keep_nothing_and_those_between_keep_all():
    last = _forward("finetuning_type: freeze", "freeze_trainable_layers: 1")
    spread = _forward("finetuning_type: freeze", "freeze_trainable_layers: 2", "use_llama_pro: true")
    # the second and the last block are trained: the third passes without a checkpoint, though gradients go through it
    kept = spread - last - IN_BLOCKS / 4 * 2
    assert kept > 3 * ROWS * TOKENS * MODEL.intermediate_size * 2


def _forward(*lines):
    """The most of the first forward pass, when there are no gradients and no states yet."""
    return next(one for one in needs(*lines).phases if one.phase == "forward" and one.step == 1).peak_allocated_bytes


def test_norms_can_be_wide_alone():
    run = run_of("finetuning_type: lora", "upcast_layernorm: true")
    norms = sum(one.numel for one in parameters(MODEL) if one.kind == "norm")
    plain = predict_run(run.changed(upcasts_at_load=()), MODEL).needs.breakdown_bytes["weights"]
    wide = predict_run(run, MODEL).needs.breakdown_bytes["weights"]
    assert 0 < wide - plain <= norms * 2 + 512 * MODEL.num_hidden_layers * 3


LOGITS = ROWS * TOKENS * MODEL.vocab_size * 4


def logits_of(*lines):
    report = needs("finetuning_type: lora", *lines)
    return report.breakdown_bytes["logits"] / LOGITS


def test_pairs_hold_five_times_the_logits_while_the_reference_is_asked():
    """The policy's logits and their log-softmax; the reference's logits, a copy laid together, and its log-softmax."""
    assert logits_of("stage: dpo") == pytest.approx(2 * 5, rel=0.02)


def test_without_a_reference_they_hold_fewer():
    assert logits_of("stage: dpo", "pref_loss: simpo") == pytest.approx(2 * 3, rel=0.2)


def test_single_judged_rows_hold_six_times_the_logits():
    """Copies by label and the policy's log-softmax; the reference's logits, and a mismatched pass's three."""
    assert logits_of("stage: kto") == pytest.approx(6, rel=0.02)


def test_rewards_make_logits_for_nothing():
    report = needs("finetuning_type: lora", "stage: rm")
    assert report.breakdown_bytes["logits"] > 2 * 2 * LOGITS


@pytest.mark.parametrize(("lines", "bytes_each"), [(("packing: true",), 8), (("neat_packing: true",), TOKENS * 2 + 16)])
def test_a_mask_of_the_collator_lies_in_every_batch(lines, bytes_each):
    report = needs("finetuning_type: lora", "gradient_accumulation_steps: 4", *lines)
    each = ROWS * TOKENS
    expected = 4 * each * (24 if bytes_each == 8 else bytes_each)
    assert report.breakdown_bytes["data"] == pytest.approx(expected, rel=0.1)


def test_packed_rows_are_evaluated_at_the_batch_of_evaluations():
    lines = ("finetuning_type: lora", "packing: true", "val_size: 0.1", "eval_strategy: steps")
    run = run_of(*lines, "per_device_eval_batch_size: 4")
    few = run_of(*lines, "per_device_eval_batch_size: 2")
    peaks = [
        max(one.peak_allocated_bytes for one in predict_run(each, MODEL).needs.phases if one.phase == "eval")
        for each in (run, few)
    ]
    assert peaks[0] - peaks[1] > LOGITS


def test_mismatched_rows_of_kto_may_be_wider_than_the_others():
    """`[own, mismatched]` a line: the passes for the KL term take their own width."""
    run = run_of("finetuning_type: lora", "stage: kto")
    wide = train_shapes(run, parse_lengths("[100, 301]\n[80, 90]\n", "lengths"))
    assert wide == [BatchShape(2, 104, True, mismatched=304)]
    plain = predict_run(run, MODEL, lengths=parse_lengths("100\n80\n", "lengths")).needs
    both = predict_run(run, MODEL, lengths=parse_lengths("[100, 301]\n[80, 90]\n", "lengths")).needs
    # the reference's pass over them, while its logits of the others are there
    assert both.peak_allocated_bytes - plain.peak_allocated_bytes > 2 * 200 * 2 * MODEL.vocab_size * 4
