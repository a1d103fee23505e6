"""What words of --allow open: weights in bf16, adapters on attention alone, no evaluation; and the proof that nothing fits."""

import pytest

from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.variants.lower_bounds import proof_bytes
from vramwise.verbs.fitting.fastest import fit_subject, opens

FULL = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
    "template: qwen\ncutoff_len: 512\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\n"
)
EXPERTS = (
    "base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\n"
    "lora_target_linear: true\nsequence_len: 512\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
    "gradient_checkpointing: true\noptimizer: adamw_torch_fused\nbf16: auto\nval_set_size: 0.1\nevals_per_epoch: 2\n"
)


def subject(text, card, trainer, **options):
    return open_subject(Text(text), Options(gpu=card, trainer=trainer, text_alone=True, **options))


def test_a_full_fine_tune_fits_with_its_weights_in_bf16():
    run = subject(FULL, "7GB", "llamafactory")
    closed = fit_subject(run, allow=())
    assert closed.best is None
    assert "bf16-weights" in dict(closed.opened)
    best = fit_subject(run, allow=("bf16-weights",)).best
    assert best.run.loading.trains_in_fp32 is False
    assert best.document.values["pure_bf16"] is True
    assert "bf16" not in best.document.values
    assert "pure_bf16" in best.words


def test_experts_are_quantised_where_the_targets_may_be_named():
    best = fit_subject(subject(EXPERTS, "rtx-4090", "axolotl"), allow=("narrower-targets",)).best
    values = best.document.values
    assert values["quantize_moe_experts"] is True
    assert values["lora_target_modules"] == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert not values["lora_target_linear"]
    assert best.reserved_bytes < 24 * 2**30


@pytest.mark.parametrize("version", ["0.20.0", "0.21.0"])
def test_evaluation_is_turned_off_in_every_version(version):
    from vramwise.variants.changes.batches import no_evaluation
    from vramwise.verbs.drafts import attempt

    found = subject(EXPERTS, "h100", "axolotl", versions=(f"axolotl=={version}",))
    assert opens(found.run, "no-evaluation")
    made = attempt(found, no_evaluation(found.run), predicts=False)
    assert not made.run.evaluation.evaluates
    assert not made.refused


def test_only_weights_that_exceed_the_card_prove_anything():
    opened = subject(FULL, "6GB", "llamafactory")
    weights = 4 * 494_032_768  # bf16 weights and gradients
    assert proof_bytes(opened.run, opened.model, (), 2**30) == pytest.approx(weights, rel=0.3)
    assert proof_bytes(opened.run, opened.model, (), 2**32) == 0
    assert proof_bytes(opened.run, opened.model, ("qlora",), 2**30) == 0
