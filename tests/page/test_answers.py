"""The page's questions, asked natively: the same answers as the command line's, and nothing read but the request."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vramwise.allocator.run import simulate
from vramwise.api import check, fit, fix, predict
from vramwise.page.answers import Answers
from vramwise.render.outward import unstyle
from vramwise.render.verdict_text import headline

EXAMPLES = Path(__file__).parents[2] / "examples"
MISTAKES = (EXAMPLES / "mistakes.yml").read_text(encoding="utf-8")
SMALL = """base_model: Qwen/Qwen2.5-0.5B
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
val_set_size: 0.1
sequence_len: 1024
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 2
eval_batch_size: 2
gradient_accumulation_steps: 1
optimizer: adamw_torch_fused
learning_rate: 0.0002
bf16: auto
attn_implementation: flash_attention_2
gradient_checkpointing: true
"""
SETTINGS = {"gpu": "rtx-4090", "gpus": 1, "versions": "", "alloc_conf": ""}
OPTIONS = {"gpu": "rtx-4090", "gpus": 1, "text_alone": True}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def answers():
    return Answers()


def ask(answers, ask, text=SMALL, *, data=None, progress=None, **more):
    request = {"ask": ask, "text": text, "settings": SETTINGS, **more}
    return json.loads(answers.answer(json.dumps(request), progress, data))


def test_a_look_says_what_check_and_predict_say(answers):
    found = ask(answers, "look", MISTAKES)
    [report] = check(MISTAKES, **OPTIONS)
    weighed = ask(answers, "weigh", MISTAKES)["findings"]
    figured = [(one["rule"], one["line"], one["message"]) for one in weighed if one["rule"] != "does-not-fit"]
    native = [one for one in report.findings if one.rule != "does-not-fit"]  # its message ends with the way out there
    assert figured == [(one.rule, one.place.line, one.message) for one in native]
    # At first sight nothing is missing of it, though some may turn out to be worth nothing.
    assert {(one["rule"], one["line"]) for one in weighed} < {(one["rule"], one["line"]) for one in found["findings"]}
    prediction = predict(SMALL, **OPTIONS, online=False).prediction
    found = ask(answers, "look")
    assert found["headline"] == unstyle(headline(prediction)).lstrip("✓✗!? ")
    assert found["state"] == "good"
    assert "memory-bar" in found["bar"]


def test_knobs_stand_where_the_config_has_them_and_turn_its_own_keys(answers):
    knobs = {knob["name"]: knob for knob in ask(answers, "look")["knobs"]}
    assert (knobs["micro_batch_size"]["now"], knobs["sequence_len"]["now"], knobs["lora_r"]["now"]) == (2, 1024, 8)
    assert knobs["eval_batch_size"]["now"] == 2
    assert {"checkpointing", "loss"} <= set(knobs)
    choice = knobs["checkpointing"]["options"][1]["value"]
    found = ask(answers, "drag", knobs={"micro_batch_size": 8, "checkpointing": choice})
    assert "micro_batch_size: 8" in found["text"]
    assert "gradient_checkpointing: true" not in found["text"]
    as_written = ask(answers, "drag")
    assert found["reserved_bytes"] > as_written["reserved_bytes"]
    assert found["headline"] == ask(answers, "look", found["text"])["headline"]


def test_a_slider_is_answered_by_one_prediction(answers, monkeypatch):
    """Not by those of shorter rows and of remedies, nor by a second look at what is too much anyway."""
    asked = []
    monkeypatch.setattr("vramwise.variants.simulate.simulate", lambda *a, **k: asked.append(k) or simulate(*a, **k))
    unpadded = SMALL.replace("sample_packing: true\npad_to_sequence_len: true\n", "")
    knobs = {"micro_batch_size": 64, "sequence_len": 8192}
    found = ask(answers, "drag", unpadded, knobs=knobs)
    assert found["headline"].startswith("May not fit: ")
    assert "if rows are full 8192 tokens" in found["headline"]
    assert (found["fits"], found["state"], len(asked)) == (False, "open", 1)
    weighed = ask(answers, "weigh", unpadded, knobs=knobs)
    assert (weighed["fits"], weighed["reserved_bytes"]) == (False, found["reserved_bytes"])


# In a process of its own, as in a browser: the garbage of a whole test run takes long to go through.
DRAGGED = """
import gc, json, sys
from vramwise.page.answers import Answers
from vramwise.timeline import Timeline

def kept():
    gc.collect()
    return sum(type(one) is Timeline and bool(one.events) for one in gc.get_objects())

desk, request = Answers(), json.load(sys.stdin)
for rank in range(1, 9):
    assert json.loads(desk.answer(json.dumps({**request, "knobs": {"lora_r": rank}}), None, None))["ok"]
before = kept()
del desk
print(before - kept())
"""


def test_a_hand_that_plays_on_leaves_no_pile():
    """Each place's predictions go with it: they would fill the browser's memory."""
    request = json.dumps({"ask": "drag", "text": SMALL, "settings": SETTINGS})
    done = subprocess.run([sys.executable, "-c", DRAGGED], input=request, capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 6


def test_knobs_that_are_none_or_not_numbers_change_nothing(answers):
    odd = {"micro_batch_size": "8; rm", "base_model": 3, "loss": ["x"], "checkpointing": "no-such", "lora_r": True}
    assert ask(answers, "drag", knobs=odd)["text"] == SMALL


def test_a_run_is_refused_with_the_line(answers):
    found = ask(answers, "look", "base_model: x\nadapter: [")
    assert (found["ok"], found["line"]) == (False, 2)
    assert ask(answers, "look", "")["error"].startswith("there is no config yet")
    assert "does not read" in ask(answers, "look", "apiVersion: v1\nkind: Pod\n")["error"]


def test_a_card_or_count_that_does_not_exist_is_one_sentence(answers):
    for settings in ({"gpu": "rtx-9999"}, {"gpu": "rtx-4090", "gpus": 0.5}, {"gpu": "h100", "versions": "torch"}):
        found = json.loads(answers.answer(json.dumps({"ask": "look", "text": SMALL, "settings": settings})))
        assert found["ok"] is False
        assert not found.get("internal")


def test_one_fix_and_all_fixes(answers):
    found = ask(answers, "look", MISTAKES)
    one = next(finding for finding in found["findings"] if finding["rule"] == "eval-batch-differs")
    mended = ask(answers, "fix", MISTAKES, finding=one)["text"]
    assert "eval_batch_size: 4" in mended
    assert "batch_size: 32 " in mended
    [native] = fix(MISTAKES, gpu="rtx-4090", text_alone=True, predict=True)
    assert ask(answers, "fix-all", MISTAKES)["text"] == native.after.text
    assert "is gone" in ask(answers, "fix", SMALL, finding=one)["error"]


def test_the_chart_draws_what_was_predicted(answers):
    found = ask(answers, "chart")
    prediction = predict(SMALL, **OPTIONS, online=False).prediction
    assert 'id="timeline-chart"' in found["markup"]
    reserved = [sum(found["data"]["reserved"][: i + 1]) for i in range(len(found["data"]["reserved"]))]
    assert max(reserved) * found["data"]["unit"] == prediction.needs.peak_reserved_bytes


@pytest.mark.usefixtures("short_searches")
def test_fit_gives_the_text_of_the_same_search(answers):
    heard = []
    found = ask(answers, "fit", progress=lambda done, of: heard.append((done, of)))
    best = fit(SMALL, **OPTIONS, online=False).best
    assert found["text"] == best.document.text
    assert 'id="variants"' in found["markup"]
    assert heard


def test_what_does_not_fit_comes_with_what_does(answers):
    large = SMALL.replace("sequence_len: 1024", "sequence_len: 4096").replace("batch_size: 2", "batch_size: 4")
    assert ask(answers, "look", large)["fits"] is False
    found = ask(answers, "remedy", large)
    assert found["found"]
    assert ask(answers, "look", found["text"])["fits"] is True
    assert {card["kind"] for card in ask(answers, "cards", large)["cards"]} & {"does_not_fit"}


def test_the_report_is_a_whole_page(answers):
    page = ask(answers, "report", name="mine.yml")["html"]
    assert page.startswith("<!doctype html>")
    assert "mine.yml" in page


@pytest.mark.usefixtures("brief_searches")
def test_a_config_from_a_few_words(answers):
    wishes = {"model": "HuggingFaceTB/SmolLM2-135M", "method": "qlora", "sequence_len": 1024, "batch": 8}
    found = ask(answers, "start", wishes=wishes)
    assert "base_model: HuggingFaceTB/SmolLM2-135M" in found["text"]
    assert "sequence_len: 1024" in found["text"]
    assert "fits" in found["verdict"]
    assert ask(answers, "look", found["text"])["fits"] is True
    for wrong in ({"model": ""}, {"model": "x", "method": "rm"}, {"model": "x", "batch": "two"}):
        assert ask(answers, "start", wishes=wrong)["ok"] is False


@pytest.mark.usefixtures("brief_searches")
def test_a_config_for_each_trainer_that_one_can_be_made_for(answers):
    offered = [one["name"] for one in ask(answers, "catalogue")["trainers"] if one["composes"]]
    assert offered == ["axolotl", "llamafactory", "unsloth", "trl"]
    for trainer in offered:
        wishes = {"model": "HuggingFaceTB/SmolLM2-135M", "method": "lora", "trainer": trainer}
        started = ask(answers, "start", wishes=wishes)
        assert started["trainer"] == trainer
        assert ask(answers, "look", started["text"])["trainer"].lower().replace("-", "") == trainer
    assert ask(answers, "start", wishes={"model": "x", "trainer": "nobody"})["ok"] is False


@pytest.mark.usefixtures("short_searches")
def test_a_log_is_diagnosed_with_the_config_at_hand(answers):
    log = (EXAMPLES / "picture.log").read_text(encoding="utf-8")
    config = SMALL.replace("sequence_len: 1024", "sequence_len: 8192")
    found = ask(answers, "diagnose", config, log=log)
    assert (found["failed"], found["state"]) == (True, "bad")
    assert found["remedies"]
    assert all(remedy["text"] != config for remedy in found["remedies"])
    alone = ask(answers, "diagnose", "no: [config", log=log)
    assert alone["failed"]
    assert alone["remedies"] == []
    assert ask(answers, "diagnose", "", log="")["ok"] is False


def test_a_snapshot_that_is_none_runs_nothing(answers, tmp_path):
    marker = tmp_path / "ran"
    hostile = b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    found = ask(answers, "diagnose", "", data=hostile)
    assert found["ok"] is False
    assert not found.get("internal")
    assert not marker.exists()


@pytest.mark.parametrize("question", ["look", "chart", "report"])
def test_hostile_words_leave_as_text(answers, question):
    text = SMALL.replace("tatsu-lab/alpaca", f"'{HOSTILE}'").replace("adamw_torch_fused", f"'{HOSTILE}'")
    found = ask(answers, question, text, name=HOSTILE)
    for field in ("bar", "markup", "html"):
        assert HOSTILE not in found.get(field, "")


def test_no_file_of_this_machine_is_read(answers, tmp_path):
    secret = tmp_path / "ds.json"
    secret.write_text('{"zero_optimization": {"stage": 3}}')
    text = SMALL + f"deepspeed: {secret}\n"
    messages = json.dumps(ask(answers, "look", text))
    assert "zero3" not in messages


def test_an_unknown_question_is_no_crash(answers):
    for request in ("{}", "[]", "1", '{"ask": "nothing"}', "not json", '{"ask": "look", "text": 5, "settings": []}'):
        assert json.loads(answers.answer(request))["ok"] is False
