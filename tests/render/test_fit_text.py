"""What `fit` says: the answer first, its price, what else fits, what to run next; and speeds in words."""

from dataclasses import replace

import pytest

from fits import a_fit, already_best, batches, candidate, nothing_fits, subject_on
from vramwise.render.fit_text import render_fit
from vramwise.render.outward import unstyle
from vramwise.render.speed_text import hours, seconds, speed_line, times, two_digits
from vramwise.variants import changes
from vramwise.variants.attempt import in_few_words
from vramwise.variants.duration import Duration
from vramwise.variants.search.result import Fit
from vramwise.variants.speed import Speed, SpeedError
from vramwise.verbs.fit import FitReport

COMMAND = "vramwise fit config.yml --gpu rtx-4090"


def told(fit, **more):
    width = more.pop("width", None)
    return [unstyle(line) for line in render_fit(FitReport(fit=fit, command=COMMAND, **more), width=width)]


def test_the_answer_says_room_speed_and_changes_and_the_last_line_what_to_run():
    _, fit = a_fit()
    lines = told(fit)
    assert lines[0].startswith("✓ Fits with ")
    assert lines[0].endswith(
        " to spare on RTX 4090, about 1.4 × as fast as your file: micro 2 × accumulation 8, Liger's fused loss"
    )
    assert lines[-1] == f"  {COMMAND} --write"
    text = "\n".join(lines)
    assert "-micro_batch_size: 4\n" in text
    assert "+micro_batch_size: 2\n" in text
    assert "Why the others were rejected: 214 slower; 31 out of memory" in text
    assert "The smallest card for your original file: RTX 4090 (23.5 GiB)" in text
    assert "no RTX 4090 was measured" in text
    assert "tokens a second (" in text


def test_every_change_says_what_it_does_to_the_training():
    lines = told(a_fit()[1])
    assert "Same result: micro 2 × accumulation 8" in lines
    assert "Same math, different kernels: Liger's fused loss" in lines
    subject = subject_on("rtx-4090")
    shorter = Fit(original=candidate(subject), best=candidate(subject, changes.shorten_rows(subject.run)))
    assert "Changes the training: rows of 1024 tokens (samples longer than the new length are dropped or cut)" in told(
        shorter
    )


def test_the_table_has_the_answer_the_others_and_the_file():
    lines = told(a_fit()[1])
    at = lines.index("Variants that fit")
    assert lines[at + 2].split()[0] == "→"
    assert lines[at + 3].endswith("micro 1 × accumulation 16")
    assert lines[at + 4].endswith("your original file")


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_is_not_overrun(width):
    for made in (a_fit, nothing_fits, already_best):
        for line in told(made()[1], width=width):
            assert len(line) <= width or line.lstrip().startswith("vramwise "), line


def test_a_file_that_is_the_answer():
    lines = told(already_best()[1])
    assert lines[0].startswith("✓ Your file is already the fastest that fits, with ")
    assert not any("--write" in line for line in lines)


def test_nothing_fits_and_what_would():
    lines = told(nothing_fits()[1])
    assert lines[0].startswith("✗ Found nothing that fits on 8GB in 40 tries: ")
    assert "short at the closest (micro 1 × accumulation 16); --allow 8bit-optimizer would (" in lines[0]
    assert lines[-1] == f"  {COMMAND} --allow 8bit-optimizer"


def test_weights_that_are_too_large_are_the_proof():
    first = told(replace(nothing_fits()[1], weights_bytes=9 * 1024**3))[0]
    assert first.startswith("✗ Does not fit on 8GB: its weights alone need at least 9.0 GiB, ")


def test_words_that_are_needed_together_are_said_together():
    _, fit = nothing_fits()
    both = replace(fit, opened=(("qlora 8bit-optimizer", fit.opened[0][1]),))
    assert told(both)[-1] == f"  {COMMAND} --allow qlora --allow 8bit-optimizer"


def test_short_of_the_margin_is_not_short_of_the_card():
    _, fit = already_best()
    near = replace(fit.original, spare_bytes=-100 * 1024**2, margin_bytes=3 * 1024**3, fell="fit, but …")
    first = told(replace(fit, original=near, best=None, closest=near))[0]
    assert "100 MiB short of the margin at the closest" in first


def test_a_file_that_does_not_fit_is_no_measure_of_speed():
    _, fit = a_fit()
    first = told(replace(fit, original=replace(fit.original, fell="out of memory")))[0]
    assert "; your file fits, but without the margin: " in first
    assert "as fast" not in first


def test_tight_is_said():
    subject = subject_on("rtx-4090")
    one = candidate(subject)
    held = one.prediction.needs.highest_reserved_bytes
    tight = replace(one.prediction, limit_bytes=held + 10 * 1024**2)
    one = replace(one, prediction=tight, spare_bytes=10 * 1024**2)
    first = told(Fit(original=one, best=one))[0]
    assert first.startswith("! ")
    assert "(tight)" in first


def test_a_tight_answer_names_one_with_more_room():
    _, fit = a_fit()
    held = fit.best.prediction.needs.highest_reserved_bytes
    near = replace(fit.best.prediction, limit_bytes=held + 10 * 1024**2)
    best = replace(fit.best, prediction=near, spare_bytes=10 * 1024**2)
    lines = told(replace(fit, best=best, alternatives=(best, fit.alternatives[1])))
    assert lines[0].startswith("! ")
    assert any(
        line.startswith(
            "  With more room: micro 1 × accumulation 16 (14.3 GiB to spare, 0.78 × the speed); use --margin 2GiB"
        )
        for line in lines
    )


def test_a_line_for_the_shell_comes_before_training():
    subject, fit = a_fit()
    best = replace(fit.best, commands=("export PYTORCH_ALLOC_CONF=x",))
    assert told(replace(fit, best=best))[-1] == "  export PYTORCH_ALLOC_CONF=x"
    written = told(replace(fit, best=best), written="config.yml")
    assert written[-3:] == ["Written: config.yml", "Before training:", "  export PYTORCH_ALLOC_CONF=x"]
    assert subject.document.text not in "\n".join(written)


def test_shorter_rows_are_compared_by_the_token():
    """A step of half the tokens takes half the time, and trains no faster."""
    subject = subject_on("rtx-4090")
    shorter = candidate(subject, changes.shorten_rows(subject.run))
    fit = Fit(original=candidate(subject), best=shorter)
    assert "as fast as your file: rows of 1024 tokens" in told(fit)[0]


def test_changes_in_few_words():
    subject = subject_on("rtx-4090")
    run = subject.run
    assert in_few_words(()) == "your original file"
    assert in_few_words([batches(subject, 2)]) == "micro 2 × accumulation 8"
    assert in_few_words([changes.expandable_segments(run.changed(allocator=""))]) == "expandable segments"
    offload = changes.change("x", "same", "Title", "why", gradient_checkpointing=True, activation_offloading="stream")
    assert in_few_words([offload]) == "checkpointing with activations offloaded"
    strange = changes.change("x", "same", "Use a new thing", "why", no_such_field=1)
    assert in_few_words([strange]) == "use a new thing"


def test_speeds_in_words():
    assert [seconds(value) for value in (0.012, 0.834, 12.36, 210.4)] == ["12 ms", "0.83 s", "12.4 s", "210 s"]
    assert [hours(value) for value in (0.005, 0.5, 1.23, 100)] == ["18 seconds", "30 minutes", "1.2 hours", "4.2 days"]
    assert [two_digits(value) for value in (9876.0, 123456.0, 12.3)] == ["9,900", "120,000", "12"]
    assert [times(value) for value in (0.87, 1.0, 1.04, 1.44)] == ["0.87 ×", "1.0 ×", "1.04 ×", "1.4 ×"]


def test_the_line_of_a_speed():
    speed = Speed(step_seconds=0.83, tokens_per_second=9876, error=SpeedError(runs=20, median=5.6, worst=14.2))
    whole = Duration(steps=600, hours=1.2, basis="3 epochs of 2,000 samples", at_least=True)
    assert speed_line(speed, whole) == (
        "About 0.83 s a step, 9,900 tokens a second (± 6 %, 14 % at worst); "
        "3 epochs of 2,000 samples (600 steps): at least 1.2 hours"
    )
