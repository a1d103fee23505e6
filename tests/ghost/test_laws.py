"""Laws that any prediction obeys, whatever the family and the method: more of it needs more, a limit is a limit."""

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nightly import examples
from truth import BUNDLED, cases
from vramwise.models.config import model_from_config
from vramwise.variants.prediction import Prediction, predict_run

RUN = next(case.run for case in cases(BUNDLED) if case.run.adapter.kind == "lora")
FAMILIES = [
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "phi", "mixtral", "qwen3_moe",
    "olmo2", "olmoe", "gpt_neox", "falcon", "starcoder2", "granite", "smollm3",
]  # fmt: skip
SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2}
SPARSE = ("mixtral", "qwen3_moe", "olmoe")
# Alignment and splits of kernels may take a few KiB more for a little less.
NEARLY = 1.001


@st.composite
def runs(draw):
    adapter = draw(st.sampled_from([None, "lora", "qlora"]))
    return RUN.changed(
        adapter=adapter,
        quantization="4bit" if adapter == "qlora" else None,
        lora_r=8 if adapter else None,
        lora_dropout=draw(st.sampled_from([0.0, 0.05])),
        lora_target_linear=True,
        micro_batch_size=draw(st.sampled_from([1, 2, 4])),
        sequence_len=draw(st.sampled_from([256, 1000, 1024])),
        gradient_accumulation_steps=draw(st.sampled_from([1, 2])),
        recompute=draw(st.booleans()),
        checkpointing_reentrant=draw(st.booleans()),
        attn_implementation=draw(st.sampled_from(["sdpa", "eager", "flash_attention_2"])),
        loss_kernel=draw(
            st.sampled_from(["stock", "liger_fused_linear", "cut", "chunked", "dft", "eaft", "dft_whole"])
        ),
        optimizer=draw(st.sampled_from(["adamw_torch_fused", "adamw_torch", "adamw_bnb_8bit", "adafactor"])),
        allocator=draw(st.sampled_from(["", "expandable_segments:True"])),
        evaluates=False,
        eval_batch_size=None,
    )


def predicted(run, family, *, vocab=32000, **options) -> Prediction:
    fields = {"model_type": family, **SIZES, **(EXPERTS if family in SPARSE else {}), "vocab_size": vocab}
    return predict_run(run, model_from_config(fields, name=family, source="made up"), **options)


def allocated(*arguments, **options) -> int:
    return predicted(*arguments, **options).needs.peak_allocated_bytes


def law(test):
    """A few runs, the same ones every time."""
    given_run = given(run=runs(), family=st.sampled_from(FAMILIES))
    return settings(
        max_examples=examples(12), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )(given_run(test))


@law
def test_more_of_anything_never_needs_less(run, family):
    need = allocated(run, family)
    assert need <= allocated(run, family, vocab=40000) * NEARLY
    larger = [{"micro_batch_size": run.batch.micro_batch_size + 1}, {"sequence_len": run.shapes.sequence_len * 2}]
    if run.adapter.kind:
        larger.append({"lora_r": 32})
    for change in larger:
        assert need <= allocated(run.changed(**change), family) * NEARLY, change


@law
def test_fewer_bits_hold_smaller_weights(run, family):
    """Of dense models: experts are not quantised, and PEFT's preparation casts them to fp32."""
    assume(family not in SPARSE)
    lora = run.changed(adapter="lora", lora_r=8, quantization=None)
    four, eight, sixteen = (
        predicted(lora.changed(quantization=bits), family).needs.breakdown_bytes["weights"]
        for bits in ("4bit", "8bit", None)
    )
    assert four < eight < sixteen


@law
def test_what_is_predicted_to_be_reserved_is_enough_and_a_third_is_not(run, family):
    # Against a limit torch counts an expandable segment's request in full, though less is missing: not enough then.
    run = run.changed(allocator="")
    needs = predicted(run, family).needs
    assert needs.peak_allocated_bytes <= needs.peak_reserved_bytes
    enough = predicted(run, family, limit_bytes=needs.highest_reserved_bytes)
    assert enough.report.out_of_memory is None
    assert enough.report.retries == 0
    little = predicted(run, family, limit_bytes=needs.peak_allocated_bytes // 3)
    assert little.fits is False
    assert little.report.out_of_memory.phase
    assert little.report.out_of_memory.reserved_bytes <= needs.peak_allocated_bytes // 3


@law
def test_accumulation_keeps_gradients_longer_and_nothing_else(run, family):
    once, twice, often = (
        predicted(run.changed(gradient_accumulation_steps=count), family).needs for count in (1, 2, 6)
    )
    held = once.breakdown_bytes["weights"] * 2  # gradients are as large as weights, or twice that in fp32
    assert once.peak_allocated_bytes <= twice.peak_allocated_bytes <= once.peak_allocated_bytes + held
    # The inputs of all micro-batches of a step are on the card at once: three tensors of 64-bit numbers each.
    width = run.shapes.sequence_len + run.shapes.pad_multiple
    inputs = 4 * 3 * run.batch.micro_batch_size * width * 8
    assert twice.peak_allocated_bytes <= often.peak_allocated_bytes <= twice.peak_allocated_bytes + inputs


@law
def test_three_steps_reach_the_steady_state(run, family):
    few, many = predicted(run, family, steps=3).needs, predicted(run, family, steps=9).needs
    assert few.peak_allocated_bytes == many.peak_allocated_bytes
    assert many.peak_reserved_bytes <= few.peak_reserved_bytes * 1.01
