"""Answers that the page needs beside the verbs' own: errors that stop a run, remedies in two steps, page actions."""

import json
import re

import pytest
from page_reader import EXAMPLES, SMALL

from vramwise.page.answers import Answers
from vramwise.page.views import ACTIONS
from vramwise.types import Severity
from vramwise.types.actions import COMMAND_LINE, action, in_words_of

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
LARGE = SMALL.replace("micro_batch_size: 8", "micro_batch_size: 64")
UNPADDED = SMALL.replace("sample_packing: true\npad_to_sequence_len: true\n", "").replace("size: 8", "size: 12")
# What is the reader's own text, or drawn from it.
THEIRS = {"text", "diff", "data", "html"}


@pytest.fixture(scope="module")
def answers():
    return Answers()


def ask(answers, ask, text=SMALL, *, gpu="rtx-4090", progress=None, settings=(), **more):
    request = {"ask": ask, "text": text, "settings": {"gpu": gpu, **dict(settings)}, **more}
    return json.loads(answers.answer(json.dumps(request), progress))


def words_of(answer):
    """Every string of an answer that is not the reader's own."""
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, list):
        for one in answer:
            yield from words_of(one)
    elif isinstance(answer, dict):
        for name, one in answer.items():
            if name not in THEIRS:
                yield from words_of(one)


def options_in(answer):
    return [word for word in words_of(answer) if OPTION.search(word) or "vramwise fit" in word]


def test_a_run_that_stops_comes_with_its_errors_and_one_fix_for_all(answers):
    mistakes = (EXAMPLES / "mistakes.yml").read_text(encoding="utf-8")
    found = ask(answers, "look", mistakes)
    assert (found["kind"], found["state"], found["fits"]) == ("stops", "bad", False)
    stops = found["stops"]
    assert stops["title"] == "Will not start"
    assert [(one["rule"], one["line"]) for one in stops["errors"]] == [
        ("unknown-optimizer", 23),
        ("lora-4bit-not-qlora", 3),
    ]
    assert stops["memory"].startswith("It would not fit: it would need ")
    assert not any(one["message"] in line for one in stops["errors"] for line in found["reasons"])
    fixed = ask(answers, "fix-errors", mistakes)
    assert len(fixed["applied"]) == 2
    after = ask(answers, "look", fixed["text"])
    assert after["stops"] is None
    assert not [one for one in after["findings"] if one["severity"] == Severity.ERROR and one["rule"] != "does-not-fit"]


def test_a_card_that_cannot_run_it_stops_it_too(answers):
    qlora = (EXAMPLES / "qlora.yml").read_text(encoding="utf-8")
    found = ask(answers, "look", qlora, gpu="t4")
    assert [one["rule"] for one in found["stops"]["errors"]] == ["attention-unsupported-card"]
    assert found["stops"]["memory"].startswith("It would need ")
    assert ask(answers, "look", ask(answers, "fix-errors", qlora, gpu="t4")["text"], gpu="t4")["fits"] is True


def test_the_first_remedy_takes_a_few_predictions_and_fits(answers, monkeypatch):
    from vramwise.verbs.drafts import Draft

    made, predicted = [], Draft.predicted
    monkeypatch.setattr(Draft, "predicted", lambda *a, **k: made.append(a) or predicted(*a, **k))
    found = ask(answers, "first-remedy", LARGE)
    assert found["found"]
    assert 1 <= len(made) <= 5
    assert ask(answers, "look", found["text"])["fits"] is True


def test_the_search_for_a_remedy_tells_how_far_it_is(answers):
    told = []
    found = ask(answers, "remedy", LARGE, progress=lambda done, of: told.append((done, of)))
    assert found["found"]
    assert told == sorted(set(told))
    assert all(0 < done <= of for done, of in told)
    assert len(told) >= 2
    assert ask(answers, "look", found["text"])["fits"] is True


@pytest.mark.usefixtures("short_searches")
def test_a_remedy_leaves_what_is_weighed_as_it_is():
    """Both count their work: one must not take it from the other."""
    alone = ask(Answers(), "weigh", UNPADDED)
    together = Answers()
    ask(together, "first-remedy", UNPADDED)
    ask(together, "remedy", UNPADDED)
    assert ask(together, "weigh", UNPADDED) == alone


def test_reasons_name_what_the_page_can_do(answers):
    found = ask(answers, "weigh", UNPADDED)
    assert found["kind"] == "may_fit"
    settled = "tokens: set Sequence length to this under What if to make sure"
    assert any(line.endswith(settled) for line in found["reasons"])
    sharded = SMALL + "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
    assert any("set Cards to how many" in line for line in ask(answers, "look", sharded)["reasons"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["picture.yml", "mistakes.yml", "trl-sft.yml", "llamafactory-lora.yml"])
@pytest.mark.usefixtures("brief_searches")
def test_no_answer_names_an_option_of_the_command_line(answers, name):
    text = re.sub("^#.*\n", "", (EXAMPLES / name).read_text(encoding="utf-8"))
    for question in ("look", "weigh", "chart", "remedy", "cards"):
        assert options_in(ask(answers, question, text)) == [], question
    log = (EXAMPLES / "picture.log").read_text(encoding="utf-8")
    for config in (text, ""):
        assert options_in(ask(answers, "diagnose", config, log=log)) == []


@pytest.mark.usefixtures("brief_searches")
def test_neither_do_errors_and_a_search_that_finds_nothing(answers):
    assert options_in(ask(answers, "catalogue")) == []
    large = SMALL.replace("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-72B")
    assert options_in(ask(answers, "fit", large)) == []
    assert options_in(ask(answers, "fit", LARGE)) == []
    for text in ("a: 1\n", "kind: Pod\napiVersion: v1\n", SMALL.replace("Qwen/Qwen2.5-0.5B", "nobody/nothing")):
        assert options_in(ask(answers, "look", text)) == [], text
    for settings in ({"versions": "torch==2.9 torch==2.8"}, {"alloc_conf": "max_split_size_mb:1"}, {"gpu": "x"}):
        assert options_in(ask(answers, "look", settings=settings)) == [], settings


def test_the_page_has_words_for_every_action_and_keeps_them_to_itself():
    assert set(ACTIONS) == set(COMMAND_LINE)
    for name, words in COMMAND_LINE.items():
        assert ACTIONS[name].count("{}") <= words.count("{}")
    with in_words_of(ACTIONS):
        assert action("choose a card") == ACTIONS["choose a card"]
    assert action("choose a card") == COMMAND_LINE["choose a card"]


def test_a_dropped_notebook_goes_from_its_verdict_to_one_that_fits(answers):
    notebook = (EXAMPLES / "support.ipynb").read_text(encoding="utf-8")
    found = ask(answers, "look", notebook)
    assert (found["kind"], found["text"]) == ("may_fit", notebook)  # until shorter rows are tried
    assert ask(answers, "weigh", notebook)["kind"] == "does_not_fit"
    fitted = ask(answers, "fit", notebook)
    cells = [json.loads(text)["cells"] for text in (notebook, fitted["text"])]
    changed = [number for number, both in enumerate(zip(*cells, strict=True), 1) if both[0] != both[1]]
    assert changed == [5]
    assert ask(answers, "look", fitted["text"])["kind"] == "fits"


def test_findings_of_a_notebook_are_at_their_lines_of_the_file_and_fixed_there(answers):
    notebook = (EXAMPLES / "support.ipynb").read_text(encoding="utf-8")
    notebook = notebook.replace("bf16=True", "warmup_ratio=0.1")
    found = next(one for one in ask(answers, "look", notebook)["findings"] if one["key"] == "warmup_ratio")
    assert "warmup_ratio=0.1" in notebook.splitlines()[found["line"] - 1]
    wanted = {key: found[key] for key in ("rule", "key", "line")}
    fixed = ask(answers, "fix", notebook, finding=wanted)["text"]
    assert json.loads(fixed)["cells"][4] != json.loads(notebook)["cells"][4]
