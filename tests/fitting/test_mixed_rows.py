"""Runs whose rows nobody described are simulated with full rows and with drawn sequences of mixed ones."""

import pytest
from small_runs import LORA, small

from vramwise.opening.options import Options, Text
from vramwise.opening.subject import open_subject
from vramwise.render.outward import unstyle
from vramwise.render.prediction_json import prediction_json
from vramwise.render.prediction_text import render_prediction
from vramwise.training.parent.prepare import memory_decision
from vramwise.types import Origin
from vramwise.units import gib, readable
from vramwise.variants import capacity
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.variants.capacity import SHORTEST_PART, drawn, follows_data, on_card
from vramwise.variants.lengths import Lengths
from vramwise.variants.prediction import profile_of
from vramwise.variants.search.result import weighed
from vramwise.variants.verdict import NAMES
from vramwise.verbs.fitting.fastest import answer_of, fit_subject
from vramwise.verbs.fitting.shorter_rows import judged, rows_that_fit
from vramwise.verbs.fitting.smallest_card import smallest_card
from vramwise.verbs.starting.trials import Trial, judged_as

WIDE = LORA.replace("sample_packing: true\npad_to_sequence_len: true\n", "").replace("1024", "2048")

PLAIN_ROWS = (
    "model_name_or_path: HuggingFaceTB/SmolLM2-135M\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: x\ncutoff_len: 2048\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 16\n"
    "optim: adamw_torch_fused\nbf16: true\ntemplate: default\noutput_dir: out\n"
)


def fixed(gib, text=WIDE):
    """A run without expandable segments on a card of this size."""
    subject = small(text, gib)
    return subject.with_run(subject.run.changed(allocator=""))


def nearly_full():
    """A run whose full rows leave one percent of the card free."""
    needed = fixed(40).prediction().needs
    return fixed((needed.device_bytes * 1.01) / 2**30)


def test_draws_are_fixed_and_end_with_the_longest_row():
    run = fixed(40).run
    for spread in (1, 3):
        lengths = drawn(run, spread)
        assert lengths.tokens == drawn(run, spread).tokens
        assert lengths.tokens[-1] == max(lengths.tokens) == run.shapes.sequence_len
        assert min(lengths.tokens) >= run.shapes.sequence_len // SHORTEST_PART
    assert sum(drawn(run, 3).tokens) < sum(drawn(run, 1).tokens)


def test_preference_data_is_drawn_in_pairs():
    run = fixed(40).run
    paired = run.changed(objective="dpo")
    assert drawn(paired, 1).pairs
    assert len(drawn(paired, 1).tokens) == 2 * len(drawn(run, 1).tokens)


def test_a_run_that_fits_with_full_rows_alone_may_not_fit():
    prediction = nearly_full().prediction()
    assert prediction.report.out_of_memory is None
    assert max(prediction.mixed_bytes) > prediction.needs.highest_reserved_bytes
    assert prediction.most_bytes == max(prediction.mixed_bytes)
    assert [one.kind for one in prediction.known_doubts] == ["rows"]
    assert prediction.margin.more > 0
    assert prediction.fits is None
    assert prediction.verdict().kind == "may_fit"


def test_the_table_is_of_the_rows_that_the_verdict_is_about():
    prediction = nearly_full().prediction()
    most = max(prediction.mixed_bytes)
    assert prediction.decisive.highest_reserved_bytes == most > prediction.needs.highest_reserved_bytes
    lines = [unstyle(line) for line in render_prediction(prediction)]
    assert gib(most) in lines[0]
    at = next(line for line in lines if line.startswith("At the peak"))
    step = prediction.decisive.peak_step
    assert f"(step {step}, {prediction.decisive.peak_phase})" in at
    assert any(line.startswith(f"  Peak in step {step}") for line in lines)
    whole = next(line for line in lines if "on the device" in line)
    assert readable(prediction.decisive.peak_reserved_bytes + prediction.decisive.outside_bytes) in whole
    assert max(one.reserved_bytes for one in profile_of(prediction).moments) == most
    assert prediction.lean().decisive == prediction.decisive
    found = prediction_json(prediction)
    assert found["mixed_rows"]["peak_reserved_bytes"] == most > found["peak_reserved_bytes"]
    assert found["mixed_rows"]["peak_at"]["step"] == step
    assert prediction_json(fixed(40).prediction())["mixed_rows"] is None


def test_a_run_that_fits_with_shorter_rows_may_need_as_little_as_its_weights():
    subject = fixed(4)
    prediction = subject.prediction()
    assert prediction.memory_fits is False
    verdict = judged(subject, prediction)
    assert (verdict.kind, prediction.verdict().kind) == ("may_fit", "does_not_fit")
    assert verdict.least_bytes < prediction.capacity_bytes < verdict.most_bytes
    assert prediction_json(prediction, verdict=verdict)["range"]["lower_bytes"] == verdict.least_bytes


def test_the_rows_that_fit_do_so_when_they_are_mixed():
    subject = nearly_full()
    prediction = subject.prediction()
    rows = rows_that_fit(subject, prediction)
    assert rows is not None
    assert rows < 2048
    shorter = subject.with_run(subject.run.changed(sequence_len=rows))
    for spread in (1, 3):
        assert shorter.prediction(lengths=drawn(shorter.run, spread)).memory_fits is True


@pytest.mark.parametrize("why", ["known lengths", "far below the card", "expandable segments", "every row is full"])
def test_mixed_rows_are_simulated_only_where_they_may_decide(why):
    subject = nearly_full()
    lengths = None
    if why == "known lengths":
        lengths = Lengths(tokens=[2048] * 16)
    elif why == "far below the card":
        subject = fixed(40)
    elif why == "expandable segments":
        subject = subject.with_run(subject.run.changed(allocator="expandable_segments:True"))
        assert not follows_data(subject.run)
    else:
        subject = subject.with_run(subject.run.changed(constant_shapes=True))
    prediction = subject.prediction(lengths=lengths)
    assert prediction.mixed_bytes == ()
    assert prediction.known_doubts == ()


def test_another_card_asks_about_mixed_rows_too():
    roomy, card = fixed(40).prediction(), nearly_full().target.gpu
    assert roomy.verdict().kind == "fits"
    assert on_card(roomy, card).verdict().kind == "may_fit"


def test_without_a_limit_the_answer_is_the_longest_row_that_fits():
    subject = fixed(12)
    origins = {**subject.run.origins, "sequence_len": Origin(kind="assumed", why="nothing limits the rows")}
    subject = subject.with_run(subject.run.changed(sequence_len=1024, origins=origins))
    prediction = subject.prediction()
    assert prediction.memory_fits is True
    assert prediction.fits is None
    rows = rows_that_fit(subject, prediction)
    verdict = prediction.verdict(rows)
    assert (verdict.kind, verdict.rows_up_to) == ("may_fit", rows)
    stated = prediction_json(prediction, None)["range"]
    assert stated["upper_bytes"] is verdict.most_bytes is None
    assert 0 < stated["lower_bytes"] <= prediction.needs.breakdown_bytes["weights"] * 1.2
    longer = subject.with_run(subject.run.changed(sequence_len=rows * 4, origins=fixed(12).run.origins))
    assert longer.prediction().memory_fits is not True
    # and rows that are known are not cut at the assumed length
    known = subject.prediction(lengths=Lengths(tokens=[rows * 4] * 16))
    assert known.needs.highest_reserved_bytes > prediction.needs.highest_reserved_bytes


def test_padding_that_flash_attention_skips_follows_the_data_at_one_width():
    run = fixed(40, WIDE + "pad_to_sequence_len: true\n").run
    assert not follows_data(run)
    flash = run.changed(attn_implementation="flash_attention_2", allocator="expandable_segments:True")
    assert follows_data(flash)
    assert not follows_data(flash.changed(sample_packing=True))


def test_the_answer_of_fit_fits_whatever_the_rows():
    """Full rows of the fastest variant would leave 6.8 GiB, but mixed ones need the whole card."""
    found = fit_subject(open_subject(Text(PLAIN_ROWS), Options(gpu="rtx-4090")))
    assert found.best is not None
    assert found.best.commands == ("export PYTORCH_ALLOC_CONF=expandable_segments:True",)
    with_it = Options(gpu="rtx-4090", alloc_conf="expandable_segments:True")
    subject = open_subject(Text(PLAIN_ROWS), with_it)
    assert subject.with_document(found.best.document).prediction().verdict().kind == "fits"
    for one in (found.original, *found.alternatives):
        shown = subject.with_document(one.document).prediction()
        assert one.fits is (shown.memory_fits is True)
        assert one.prediction.mixed_bytes == shown.mixed_bytes


def test_mixed_rows_are_drawn_for_answers_only(monkeypatch):
    drawn_for = []
    real = capacity.mixed_runs
    monkeypatch.setattr(capacity, "mixed_runs", lambda run, *rest: drawn_for.append(run) or real(run, *rest))
    best = answer_of(open_subject(Text(PLAIN_ROWS), Options(gpu="t4")), opened())
    assert best.fits
    assert len(drawn_for) <= 2  # seven variants on the way need more than half of the card


def test_train_decides_by_the_verdict_of_predict():
    subject = fixed(4)
    prediction = subject.prediction()
    assert NAMES[judged(subject, prediction).memory].lower() == "may not fit"
    assert memory_decision(subject, prediction).why.startswith("predicted: may not fit;")


def test_new_says_what_its_written_file_lacks():
    """A trial that fits with the margin of the search counts as the prediction of its text does."""
    subject = nearly_full()
    prediction = subject.prediction()
    best = weighed(Attempt(changes=(), run=subject.run, prediction=subject.prediction(on_card=False)), None, 0)
    trial = Trial(method="lora", packed=False, start=None, subject=subject, data=subject.data, best=best)
    assert best.spare_bytes >= 0
    judged_trial = judged_as(trial, prediction)
    assert not judged_trial.fits
    assert judged_trial.best.spare_bytes < 0


def test_the_smallest_card_fits_whatever_the_rows():
    subject = fixed(40)
    card = smallest_card(subject)
    assert subject.moved_to(card).prediction().memory_fits is True
