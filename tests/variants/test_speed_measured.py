"""Step times against those that an H200 showed, of runs of the real trainer."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import speed as bench  # noqa: E402
import speed_fit  # noqa: E402
from vramwise.facts.rates import efficiency  # noqa: E402

# One of each method, host-bound and card-bound, packed and padded, with offloading; errors of all are `--record`'s.
CHOSEN = ("cal02", "cal03", "cal05", "cal08", "cal15", "cal24", "cal27")


@pytest.fixture(scope="module")
def cases():
    return {case.name[:5]: case for case in bench.cases([ROOT / "tests/data/truth/speed-calibration.jsonl"], "cal")}


@pytest.mark.parametrize("name", CHOSEN)
def test_step_times_are_near_those_measured(cases, name):
    case = cases[name]
    assert case.predicted(efficiency()) == pytest.approx(case.seconds, rel=0.15)


@pytest.mark.parametrize("name", ["cal03", "cal08", "cal27"])
def test_every_family_of_kernels_takes_what_the_card_showed(cases, name):
    case = cases[name]
    truth = speed_fit.measured(case)
    guess = {}
    for kernel, times in speed_fit.work_by_kind(case):
        family = speed_fit.merged(kernel.family)
        guess[family] = guess.get(family, 0) + times * speed_fit.on_card(kernel, case.rates, efficiency())
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
    assert found.host_forward == pytest.approx(wanted.host_forward, rel=0.05)
