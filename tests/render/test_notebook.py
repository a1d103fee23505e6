"""Results in a notebook: a frame with a page of its own, which nothing in a config or log can break out of."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

import vramwise

ROOT = Path(__file__).parents[2]
MISTAKES = (ROOT / "examples" / "mistakes.yml").read_text("utf-8")
SMALL = "base_model: HuggingFaceTB/SmolLM2-135M\nsequence_len: 2048\nmicro_batch_size: 8\nbf16: true\n"
HOSTILE = 'base_model: "</iframe><script>alert(1)</script>"\nadapter: "\\"><img src=x onerror=alert(1)>"\n'
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. <script>alert(1)</script>\n"


def page(result):
    """The page inside the frame; the frame is one element that runs nothing but the page's own script."""
    frame = result._repr_html_()
    found = re.fullmatch(
        r'<iframe title="vramwise" sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', frame
    )
    assert found, frame[:200]
    return unescape(found[1])


def test_check_shows_its_findings():
    shown = page(vramwise.check(MISTAKES))
    assert "unknown-optimizer" in shown
    assert "<script" not in shown
    assert shown == page(vramwise.check(MISTAKES)[0])


def test_fix_shows_the_diff_and_what_remains():
    shown = page(vramwise.fix(MISTAKES, unsafe=True))
    assert "+optimizer: adamw_8bit" in shown
    assert "Use adamw_8bit" in shown


def test_predict_shows_the_report_of_html():
    answer = vramwise.predict(SMALL, gpu="4GB")
    shown = page(answer)
    assert "Does not fit" in shown
    assert 'id="data"' in shown
    assert replace(answer, prediction=answer.prediction.lean())._repr_html_() is None


def test_diagnose_shows_causes_and_changes(tmp_path):
    (tmp_path / "train.log").write_text(OOM)
    shown = page(vramwise.diagnose(tmp_path / "train.log"))
    assert "Out of memory" in shown


@pytest.mark.parametrize("verb", [vramwise.check, vramwise.fix])
def test_nothing_gets_out_of_the_page(verb):
    shown = page(verb(HOSTILE))
    assert "<script" not in shown
    assert "<img" not in shown
    assert "default-src &#x27;none&#x27;" in shown or "default-src 'none'" in shown


def test_lists_stay_lists():
    reports = vramwise.check(MISTAKES)
    assert isinstance(reports, list)
    assert len(reports) == 1
    assert vramwise.check([str(ROOT / "examples" / "qlora.yml")])[0].path.endswith("qlora.yml")
