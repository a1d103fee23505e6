"""The page of `fit`: the frontier drawn, complete without a script, safe whatever a config holds."""

import re
from dataclasses import replace
from typing import get_args

import pytest

from fits import CONFIG, a_fit, already_best, candidate, nothing_fits, subject_on
from outlines import Outline
from vramwise.render.fit_html import fit_page
from vramwise.variants.search.result import Fit
from vramwise.variants.verdict import Kind
from vramwise.verbs.fit import FitReport


def page(fit):
    return fit_page(FitReport(fit=fit, command="vramwise fit config.yml --gpu rtx-4090"))


@pytest.mark.parametrize("made", [a_fit, nothing_fits, already_best], ids=lambda made: made.__name__)
def test_it_is_well_formed_and_needs_no_network_and_no_script(made):
    html = page(made()[1])
    outline = Outline(html)
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    assert "script" not in outline.tags
    assert not re.search(r"https?://", html)
    assert "style" not in {key for _, key, _ in outline.attributes}  # the page's policy forbids it


def test_every_variant_is_a_point_that_says_its_edits():
    fit = a_fit()[1]
    html = page(fit)
    points = re.findall(r'<g class="point ([a-z ]+)" tabindex="0" role="img" aria-label="([^"]+)"', html)
    assert [kind for kind, _ in points[:3]] == ["best shown", "also", "file"]
    assert "gradient_accumulation_steps: 8" in points[0][1]
    assert "18.2 GiB to spare" in points[0][1]
    assert html.count('class="frontier wide"') == html.count('class="frontier narrow"') == 1
    assert "RTX 4090: 22.8 GiB" in html


def test_what_does_not_fit_lies_beyond_the_line():
    html = page(nothing_fits()[1])
    edge = float(re.search(r'class="edge" x1="([\d.]+)"', html)[1])
    over = re.findall(r'point over[^>]*><title>.*?</title><circle class="hit" cx="([\d.]+)"', html, re.DOTALL)
    assert over
    assert all(float(x) > edge for x in over[: len(over) // 2])


def test_without_speeds_there_is_no_drawing():
    fit = a_fit()[1]
    slow = [replace(one, speed=None) for one in (fit.original, fit.best)]
    html = page(replace(fit, original=slow[0], best=slow[1], alternatives=()))
    assert "<svg" not in html
    assert "Variants" in html


def test_what_a_config_holds_stays_text():
    subject = subject_on("rtx-4090", CONFIG.replace("# small", "# <script>alert(1)</script>"))
    tried = candidate(subject)
    html = page(Fit(original=tried, best=tried))
    assert "<script>" not in html


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_verdict_can_be_shown(kind, monkeypatch):
    monkeypatch.setattr("vramwise.render.fit_words.kind", lambda fit: kind)
    assert "<main" in page(nothing_fits()[1])
