"""Step times against those that an H200 showed, of runs of the real trainer."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import speed as bench  # noqa: E402
import speed_fit  # noqa: E402
from vramwise.facts.rates import efficiency, measured_error  # noqa: E402

# One of each method, host-bound and card-bound, packed and padded, with offloading.
CHOSEN = ("cal02", "cal03", "cal05", "cal08", "cal15", "cal24", "cal27")
# Of those that were foretold: 8-bit products, Liger's functions around 4-bit ones, large products one after the other.
FORETOLD = ("archived_tiny-llama_lora_rtx-3060-12gb", "archived_tiny-llama_lora_a100-40gb", "a8_", "a5_", "a1_", "b7_")


@pytest.fixture(scope="module")
def cases():
    return {case.name[:5]: case for case in bench.cases([ROOT / "tests/data/truth/speed-calibration.jsonl"], "cal")}


@pytest.mark.parametrize("name", CHOSEN)
def test_step_times_are_near_those_measured(cases, name):
    case = cases[name]
    assert case.predicted(efficiency()) == pytest.approx(case.seconds, rel=0.15)


@pytest.fixture(scope="module")
def contact():
    return bench.cases([ROOT / "tests/data/truth/speed-contact.jsonl"])


@pytest.mark.parametrize("name", FORETOLD)
def test_what_was_far_off_at_first_is_near_now(contact, name):
    case = next(case for case in contact if case.name.startswith(name))
    assert case.predicted(efficiency()) == pytest.approx(case.seconds, rel=0.1)


def test_the_order_of_each_workload_is_kept(contact):
    for workload in ("workload a", "workload b"):
        pairs = [(case.predicted(efficiency()), case.seconds) for case in contact if case.workload == workload]
        assert bench.kendall(pairs) > 0.75
        assert bench.regret(pairs) == 0


def test_the_error_shown_is_that_of_runs_predicted_before_they_were_measured(contact, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "RECORD", tmp_path / "accuracy.json")
    bench.record([*contact, *bench.cases([ROOT / "tests/data/truth/speed-scripts.jsonl"])])
    assert json.loads((tmp_path / "accuracy.json").read_text()) == measured_error()


@pytest.mark.parametrize("name", ["cal03", "cal08", "cal27"])
def test_every_family_of_kernels_takes_what_the_card_showed(cases, name):
    case = cases[name]
    truth, rested = speed_fit.measured(case), speed_fit.rested(efficiency())
    guess = {}
    for kernel, times in speed_fit.work_by_kind(case):
        family = speed_fit.merged(kernel.family)
        guess[family] = guess.get(family, 0) + times * speed_fit.on_card(kernel, case.rates, rested)
    whole = sum(truth.values())
    assert sum(guess.values()) == pytest.approx(whole, rel=0.1)
    for family in ("product", "stream"):
        assert guess[family] == pytest.approx(truth[family], rel=0.15)


def test_orders_and_regrets():
    pairs = [(1.0, 1.1), (2.0, 1.0), (3.0, 3.0)]
    assert bench.kendall(pairs) == pytest.approx(1 / 3)
    assert bench.regret(pairs) == pytest.approx(0.1)


def test_least_squares_finds_the_constants_that_made_the_times(cases):
    few = [cases[name] for name in CHOSEN]
    wanted = efficiency()
    made = [replace(case, seconds=case.predicted(wanted)) for case in few]
    start = replace(wanted, host_forward=1.5 * wanted.host_forward)
    found = speed_fit.least_squares(start, ("host_forward",), speed_fit.off_by_step(made, wanted))
    # what is usual has a say, too
    assert found.host_forward == pytest.approx(wanted.host_forward, rel=0.1)
