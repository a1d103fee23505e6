"""Preference and reward training on shapes: what is held at once, worked out by hand."""

from dataclasses import replace

import pytest

from truth import BUNDLED, H200, cases
from vramwise.allocator.repeats import unroll
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.errors import VramwiseError
from vramwise.ghost.loops.batches import BatchShape, largest, rows_a_sample
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import Action, Timeline
from vramwise.variants.batches import train_shapes
from vramwise.variants.lengths import Lengths, parse_lengths

CASES = {case.name: case for case in cases(BUNDLED)}
LORA = CASES["lora_llama8b_s1024_b1_nogc"]
SMALL = replace(LORA.model, num_hidden_layers=2, vocab_size=50_000)
RUN = LORA.run.changed(
    micro_batch_size=2,
    sequence_len=256,
    gradient_accumulation_steps=1,
    constant_shapes=False,
    pad_to_sequence_len=False,
    pad_multiple=1,
    long_rows="cut",
    recompute=True,
    gradient_checkpointing=True,
)
DPO = RUN.changed(rl="dpo", objective="dpo", reference="adapter_off", log_probs="copied")
KTO = RUN.changed(rl="kto", objective="kto", reference="adapter_off")
GRPO = RUN.changed(
    rl="grpo",
    objective="grpo",
    reference="adapter_copy",
    generation_rows=2,
    completion_len=32,
)
FULL = {"adapter": None, "lora_r": None, "reference": "model"}


def ghost(run, **options) -> Timeline:
    return unroll(ghost_run(run, SMALL, gpu=H200, steps=2, **options)[0])


def sizes(timeline: Timeline, label: str, step: int = 2) -> list[int]:
    """The allocations under a label in that step."""
    found, phase = [], None
    for event in timeline.events:
        if event.action == Action.PHASE:
            phase = timeline.phases[event.tag]
        elif event.action == Action.ALLOC and phase and phase.step == step and timeline.tags[event.tag].label == label:
            found.append(event.size_bytes)
    return found


def phases(timeline: Timeline, step: int) -> list[str]:
    return [phase.name for phase in timeline.phases if phase.step == step]


def peak(timeline: Timeline) -> int:
    return simulate(timeline, parse_settings("", (2, 11)), apart=frozenset({"load"})).peak_allocated_bytes


def weights(timeline: Timeline) -> int:
    live = {}
    for event in timeline.events:
        if event.action == Action.PHASE and timeline.phases[event.tag].name != "load":
            break
        if event.action == Action.ALLOC and timeline.tags[event.tag].category == "weights":
            live[event.tensor] = event.size_bytes
        elif event.action == Action.FREE:
            live.pop(event.tensor, None)
    return sum(live.values())


def test_pairs_double_the_rows():
    assert [rows_a_sample(RUN.changed(objective=name)) for name in ("dpo", "orpo", "cpo", "reward", "kto")] == [
        2,
        2,
        2,
        2,
        1,
    ]
    assert largest(DPO) == BatchShape(4, 256, False)
    pairs = parse_lengths("[100, 60]\n[80, 90]\n[70, 70]\n[20, 30]", "pairs.txt")
    assert train_shapes(DPO, pairs) == [BatchShape(4, 100, True), BatchShape(4, 70, True)]
    assert train_shapes(DPO, Lengths(tokens=[100, 100])) == [BatchShape(4, 100, False)]


def test_a_pair_goes_with_either_of_its_rows():
    lengths = Lengths(tokens=[100, 600, 50, 60], pairs=True)
    assert train_shapes(DPO.changed(long_rows="drop"), lengths) == [BatchShape(2, 60, True)]
    assert train_shapes(DPO.changed(long_rows="cut"), lengths) == [BatchShape(4, 256, True)]


def test_lengths_of_pairs_are_no_lengths_of_samples():
    with pytest.raises(VramwiseError, match="the lengths are pairs, but text training uses single samples"):
        train_shapes(KTO.changed(objective="tokens", rl=None), Lengths(tokens=[10, 20], pairs=True))


def test_prompts_become_rows_of_prompt_and_completion():
    run = GRPO.changed(rows_per_prompt=2, micro_batch_size=4)
    assert train_shapes(run, Lengths(tokens=[100, 40])) == [BatchShape(4, 132, True)]
    assert train_shapes(run, Lengths(tokens=[40, 40])) == [BatchShape(4, 72, False)]
    assert largest(run).width == 256
    assert largest(run.changed(completion_len=512)).width == 768


def test_dpo_holds_both_models_logits_and_a_copy_of_each():
    logits, shorter = 4 * 256 * 50_000 * 4, 4 * 255 * 50_000 * 4
    timeline = ghost(DPO)
    assert sizes(timeline, "logits in fp32") == [logits, logits]
    assert [size for size in sizes(timeline, "log-probabilities") if size > 2**20] == [shorter, shorter]
    held = simulate(timeline, parse_settings("", (2, 11)), apart=frozenset({"load"}))
    assert held.peak_phase == "loss"
    assert held.breakdown_bytes["logits"] >= 2 * (logits + shorter)


def test_dpo_may_learn_the_chosen_rows_besides():
    besides = ghost(DPO.changed(chosen_cross_entropy=True))
    half = 2 * 255 * 50_000 * 4
    assert [size for size in sizes(besides, "log-softmax of the chosen rows") if size > 2**20] == [half, half]
    assert peak(besides) > peak(ghost(DPO))


def test_a_fused_kernel_copies_nothing():
    copied, fused = ghost(DPO), ghost(DPO.changed(log_probs="fused"))
    assert max(sizes(fused, "log-probabilities")) == 4 * 255 * 4
    assert peak(copied) - peak(fused) > 4 * 255 * 50_000 * 4


def test_chunks_need_no_logits_at_all():
    timeline = ghost(DPO.changed(log_probs="chunked"))
    assert sizes(timeline, "logits in fp32") == []
    assert peak(timeline) < peak(ghost(DPO.changed(log_probs="fused")))
    assert peak(ghost(DPO.changed(log_probs="chunked", **FULL))) > peak(timeline)


def test_the_reference_has_its_own_phase_unless_it_was_asked_before():
    assert phases(ghost(DPO), 2).count("reference") == 1
    before = ghost(DPO.changed(reference_precomputed=True))
    assert "reference" in phases(before, 0)
    assert "reference" not in phases(before, 2)
    assert peak(before) < peak(ghost(DPO))


def test_a_reference_model_is_a_second_model_in_its_own_type():
    alone = weights(ghost(DPO.changed(**FULL | {"reference": "none"})))
    in_half = weights(ghost(DPO.changed(**FULL)))
    in_full = weights(ghost(DPO.changed(**FULL, reference_dtype="fp32")))
    assert in_half == pytest.approx(2 * alone, rel=1e-3)
    assert in_full == pytest.approx(3 * alone, rel=1e-3)
    assert weights(ghost(DPO.changed(**FULL, spare_model=True))) == in_half  # it is gone before the first step


def test_an_adapter_switched_off_costs_nothing_a_copy_costs_the_adapter():
    copied = ghost(DPO.changed(reference="adapter_copy"))
    labels = [tag.label for tag in copied.tags]
    copies = [event for event in copied.events if "of the reference" in labels[event.tag] and event.action == 0]
    assert weights(ghost(DPO)) == weights(ghost(RUN))
    assert weights(copied) - weights(ghost(DPO)) == sum(event.size_bytes for event in copies) > 0


def test_a_quantised_base_has_its_adapter_in_bf16():
    quantised = {"quantization": "4bit", "adapter": "qlora"}
    wide = weights(ghost(RUN.changed(**quantised)))
    assert weights(ghost(DPO.changed(**quantised))) < wide
    assert weights(ghost(RUN.changed(**quantised, objective="orpo"))) == wide


def test_the_cache_is_emptied_after_every_micro_step_where_the_trainer_does_so():
    run = DPO.changed(empties_cache_each_step=True, gradient_accumulation_steps=3)
    timeline = unroll(ghost_run(run, SMALL, gpu=H200, steps=4)[0])
    first = next(i for i, e in enumerate(timeline.events) if e.action == Action.PHASE and timeline.phases[e.tag].step)
    assert sum(event.action == Action.EMPTY_CACHE for event in timeline.events[first:]) == 3 * 4


@pytest.mark.parametrize(
    "run",
    [
        DPO.changed(empties_cache_each_step=True, gradient_accumulation_steps=3),
        KTO,
        GRPO.changed(gradient_accumulation_steps=2, engine="beside", engine_share=0.3, engine_sleeps=True),
    ],
    ids=["dpo", "kto", "grpo"],
)
def test_counted_steps_are_what_they_would_be_written_out(run):
    widths = [256, 200, 256, 256, 256, 256]
    settings = parse_settings("expandable_segments:True", (2, 11))
    run = replace(run, target=replace(run.target, gpu=H200))
    short = simulate(ghost_run(run, SMALL, gpu=H200, widths=widths, steps=6)[0], settings)
    whole = simulate(ghost_run(run, SMALL, gpu=H200, widths=widths, steps=6, plainly=True)[0], settings)
    assert (short.peak_allocated_bytes, short.peak_reserved_bytes) == (
        whole.peak_allocated_bytes,
        whole.peak_reserved_bytes,
    )


def test_kto_passes_four_times_and_copies_the_logits_by_label():
    logits = 2 * 256 * 50_000 * 4
    timeline = ghost(KTO)
    assert sizes(timeline, "logits in fp32") == [logits] * 4
    assert sizes(timeline, "logits by label for the log") == [2 * 255 * 50_000 * 4]


def test_odds_ratios_need_no_reference_but_a_cross_entropy_of_the_chosen():
    run = RUN.changed(rl="orpo", objective="orpo", log_probs="copied", chosen_cross_entropy=True)
    timeline = ghost(run)
    assert "reference" not in phases(timeline, 2)
    # the two chosen rows are joined, and their log-softmax is kept
    assert [size for size in sizes(timeline, "log-softmax of the chosen rows") if size > 2**20] == [
        2 * 255 * 50_000 * 4
    ] * 2
    assert sizes(ghost(run.changed(chosen_cross_entropy=False)), "log-softmax of the chosen rows") == []
    one = ghost(run.changed(micro_batch_size=1))
    assert len([size for size in sizes(one, "log-softmax of the chosen rows") if size > 2**20]) == 1


def test_a_reward_model_has_no_logits_over_the_vocabulary():
    run = RUN.changed(**FULL | {"reference": "none"}, objective="reward")
    timeline = ghost(run)
    rows, width = largest(run)[:2]
    assert max(sizes(timeline, "scores")) == rows * width * 2
    assert not sizes(timeline, "logits")
    assert any("score.weight" in tag.label for tag in timeline.tags if tag.category == "optimizer")
    labels = ghost(run.changed(objective="process_reward"))
    assert 2 * 256 * 2 * 2 in sizes(labels, "scores")


def test_generation_comes_first_and_only_completions_have_logits():
    timeline = ghost(GRPO)
    names = phases(timeline, 2)
    assert names.index("generate") < names.index("reference") < names.index("backward")
    assert set(sizes(timeline, "logits in fp32")) == {2 * 33 * 50_000 * 4}
    cache = sizes(timeline, "keys and values of what is generated")
    assert max(cache) == 2 * SMALL.num_key_value_heads * 256 * SMALL.head_dim * 2
    assert "generate" not in phases(ghost(GRPO.changed(engine="elsewhere")), 2)


def test_an_in_place_division_doubles_the_gradient_of_the_logits():
    copied, fused = ghost(GRPO.changed(log_probs="copied")), ghost(GRPO.changed(log_probs="fused"))
    whole, part = 2 * 33 * 50_000 * 4, 2 * 32 * 50_000 * 4
    assert sizes(copied, "logits in fp32: backward")[:4] == [whole, whole, part, part]
    assert max(sizes(fused, "log-probabilities: backward")) == part


def test_all_rows_of_a_step_are_generated_at_once_and_scored_in_turns():
    run = GRPO.changed(gradient_accumulation_steps=4, generation_rows=8)
    cache = sizes(ghost(run), "keys and values of what is generated")
    assert max(cache) == 8 * SMALL.num_key_value_heads * 256 * SMALL.head_dim * 2
    assert set(sizes(ghost(run), "logits in fp32")) == {2 * 33 * 50_000 * 4}


def test_an_engine_beside_the_policy_takes_its_share_of_the_card():
    beside = GRPO.changed(engine="beside", engine_share=0.3, target=replace(GRPO.target, gpu=H200))
    share = int(0.3 * H200.memory_bytes)
    assert peak(ghost(beside)) - peak(ghost(GRPO.changed(engine="elsewhere"))) == pytest.approx(share, abs=512)
    asleep = peak(ghost(beside.changed(engine_sleeps=True)))
    assert share < asleep < peak(ghost(beside))
    _, said = ghost_run(beside, SMALL, gpu=H200)
    assert any("vLLM is counted as 30%" in sentence for sentence in said)


@pytest.mark.parametrize("objective", ["dpo", "kto", "orpo", "reward", "process_reward", "grpo"])
def test_evaluation_leaves_no_graph(objective):
    run = GRPO if objective == "grpo" else DPO.changed(objective=objective, reference="none")
    timeline = ghost(run.changed(evaluates=True, eval_batch_size=2, eval_sequence_len=256))
    assert "eval" in phases(timeline, 2)


def test_what_a_model_loaded_in_vain_leaves_is_handed_back_before_training():
    timeline = ghost(DPO.changed(objective="cpo", rl="simpo", reference="none", spare_model=True))
    loading = [event.action for event in timeline.events]
    loading = loading[: loading.index(Action.PHASE, 1)]
    assert Action.FREE not in loading[-loading[::-1].index(Action.EMPTY_CACHE) :]
