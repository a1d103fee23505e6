"""One question, one answer: check, fix, predict, train and every format say the same of the same file and card."""

import json
import re
from functools import cache
from html import escape
from pathlib import Path

import pytest

import vramwise
from opened import check_document, make_target
from vramwise import Options
from vramwise.documents.document import parse_document
from vramwise.opening.subject import on_target, open_subject
from vramwise.render.outward import unstyle
from vramwise.render.prediction_html import prediction_page
from vramwise.render.prediction_json import prediction_json
from vramwise.render.prediction_text import render_prediction
from vramwise.render.verdict_text import headline, reasons
from vramwise.trainers.registry import trainer_named
from vramwise.units import readable
from vramwise.variants.prediction import profile_of
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.fix import fix_subject

ROOT = Path(__file__).parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "axolotl"
CARDS = ("rtx-4090", "a100-80gb", "t4")
# Each case is several predictions: of the rules' examples and the corpus every so many, on each card in turn.
EVERY_RULE = 4
EVERY_FILE = 16
BIG = """\
base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""


def cases():
    """Every example on every card, then some of the rules' examples and of the corpus."""
    return [*examples(), *others()]


def examples():
    for path in sorted((ROOT / "examples").glob("*.yml")):
        for card in CARDS:
            yield pytest.param(path.read_text(), card, id=f"{path.name}, {card}")


def others():
    bad = [(rule.id, rule.bad) for rule in vramwise.rules() if "base_model:" in rule.bad][::EVERY_RULE]
    files = [(path.name, path.read_text()) for path in sorted(CORPUS.glob("*.y*ml"))[::EVERY_FILE]]
    for number, (name, text) in enumerate([*bad, *files]):
        card = CARDS[number % len(CARDS)]
        yield pytest.param(text, card, id=f"{name}, {card}")


@cache
def opened(text, card):
    document = parse_document("config.yml", text.encode())
    return on_target(document, trainer_named("axolotl"), make_target(gpu=card))


def said(report):
    return [(found.rule, found.severity.value, found.message, found.place.line) for found in report.findings]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("text", "card"), cases())
def test_every_verb_says_the_same(text, card):
    subject = opened(text, card)
    policy = Policy(predicts=True)
    report = check_subject(subject, policy)
    rules = {found.rule for found in report.findings}
    if report.prediction is not None:
        fits = report.prediction.memory_fits
        assert ("does-not-fit" in rules) == (report.prediction.report.out_of_memory is not None)
        assert fits is not False or "does-not-fit" in rules
        _stops_where_check_finds_errors(report)
        assert subject.prediction() == report.prediction
        _same_in_every_format(report.prediction, report.findings)
    mended = fix_subject(subject, policy)
    assert said(mended.remaining) == said(check_subject(mended.subject, policy))
    if report.prediction is not None and report.prediction.fits:
        then = check_subject(mended.subject, policy).prediction
        assert then is None or then.fits, "a safe fix broke the run"
    again = fix_subject(mended.subject, policy)
    assert again.subject.document.text == mended.subject.document.text


def _stops_where_check_finds_errors(report):
    """The verdict is `stops` just where `check` finds an error other than that it does not fit."""
    prediction = report.prediction
    errors = [found for found in report.findings if found.severity.value == "error" and found.rule != "does-not-fit"]
    assert {(found.rule, found.key) for found in prediction.stops} == {(found.rule, found.key) for found in errors}
    assert (prediction.verdict().kind == "stops") == bool(errors)
    assert not errors or prediction.fits is False


def _same_in_every_format(prediction, findings):
    document = prediction_json(prediction)
    text = "\n".join(render_prediction(prediction, verbose=True))
    page = prediction_page(prediction, profile_of(prediction), "config.yml", findings)
    for name, size in document["breakdown"].items():
        if size:
            shown = f"{name.replace('cuda_', 'CUDA ').replace('_', ' ')} *{re.escape(readable(size))}"
            assert re.search(shown, text), (name, readable(size))
            assert escape(readable(size)) in page, (name, readable(size))
    first = unstyle(headline(prediction))
    assert document["verdict"]["text"] == first
    assert unstyle(text).startswith(first)
    assert "\\x1b" not in page, "our own colours belong to terminals"
    for line in (first[2:], *reasons(prediction)):
        assert escape(line) in page
    step, phase = document["peak_at"].values()
    where = f"step {step}, {phase}" if step else phase
    assert f"in {where}" in text
    assert where in page


def test_check_and_fix_judge_the_same_run(tmp_path, vramwise):
    """`fix` used to predict nothing and call clean what `check` said would not fit."""
    config = tmp_path / "config.yml"
    small = BIG.replace("Llama-3.1-8B", "Llama-3.2-1B")  # a search takes a second
    config.write_text(small.replace("micro_batch_size: 2", "micro_batch_size: 8") + "pad_to_sequence_len: true\n")
    for words in (("check",), ("check", "--fix"), ("fix",), ("fix", "--diff")):
        done = vramwise(*words, config, "--gpu", "rtx-3060")
        assert done.exit_code == 1, words
        assert "does-not-fit" in done.output, words


def test_a_safe_fix_does_not_break_a_run(tmp_path, vramwise):
    """Short samples fit, padded ones do not: padding is not applied as safe, with either allocator."""
    config, lengths = tmp_path / "config.yml", tmp_path / "lengths.txt"
    config.write_text(BIG)
    lengths.write_text("700\n300\n512\n900\n" * 16)
    done = vramwise("predict", config, "--gpu", "rtx-4090", "--lengths", lengths, "--format", "json")
    assert json.loads(done.stdout)["fits"] is True
    padded = vramwise(
        "predict", config, "--gpu", "rtx-4090", "--what-if", "pad_to_sequence_len=true", "--format", "json"
    )
    assert json.loads(padded.stdout)["what_if"]["fits"] is False
    for allocator in ("expandable_segments:True", ""):
        vramwise("fix", config, "--gpu", "rtx-4090", "--alloc-conf", allocator)
        assert "pad_to_sequence_len" not in config.read_text(), allocator


def test_under_expandable_segments_padding_is_no_fix():
    found = check_document(
        parse_document("c.yml", BIG.encode()), make_target(), [vramwise.explain("unpadded-sequences")]
    )
    (finding,) = found.findings
    assert finding.severity.value == "info"
    assert finding.fix is None


def test_training_prepares_the_run_that_is_predicted(tmp_path, monkeypatch):
    """Held-out samples that nothing evaluates used to count in one place and not in the other."""
    from vramwise.training.parent import refusing
    from vramwise.training.parent.prepare import TrainOptions, prepare

    monkeypatch.setattr(refusing, "missing", lambda modules: [])
    config = tmp_path / "config.yml"
    for schedule in ("", "eval_steps: 10\n"):
        config.write_text(
            BIG.replace("flash_attention_2", "sdpa")
            + f"pad_to_sequence_len: true\nval_set_size: 0.1\neval_batch_size: 32\n{schedule}"
            + "datasets:\n  - path: data.jsonl\n    type: alpaca\n"
        )
        (tmp_path / "data.jsonl").write_text('{"instruction": "a", "output": "b"}\n')
        options = Options(gpu="h100", torch="2.13")
        # Training starts from full rows, and reads the data with the tokenizer where those do not fit.
        predicted = vramwise.predict(config, gpu="h100", torch="2.13", data="", engine="transformers")
        ready = prepare(str(config), TrainOptions(target=options))
        assert ready.prediction is not None
        assert ready.prediction.needs == predicted.needs
        assert ready.prediction.fits == predicted.fits


def test_a_change_has_one_effect_wherever_it_is_offered():
    from vramwise.diagnosis import advice
    from vramwise.variants import changes
    from vramwise.variants.axes import opened as opened_axes

    subject = opened(BIG.replace("micro_batch_size: 2", "micro_batch_size: 8"), "rtx-4090")
    fuse = changes.fuse_loss(subject.run)
    assert fuse is not None
    assert fuse.effect == "rounding"
    assert advice.build("fuse-loss", subject, subject.trainer).fix.safe is fuse.safe
    searched = [one for axis in opened_axes() for one in axis.choices(subject.run) if one.id == fuse.id]
    assert [one.effect for one in searched] == [fuse.effect]
    report = check_subject(subject, Policy(predicts=True))
    offered = [found.fix for found in report.findings if found.rule == "logits-dominate" and found.fix]
    assert all(fix.safe is fuse.safe for fix in offered)


def test_halving_is_done_in_one_place():
    from vramwise.training.parent.recover import sizes_below
    from vramwise.variants.changes import halve_micro_batch, smaller_sizes

    assert list(smaller_sizes(5, 2)) == [(2, 5), (1, 10)]
    assert list(sizes_below(5, 2)) == list(smaller_sizes(5, 2))
    text = BIG.replace("micro_batch_size: 2", "micro_batch_size: 5").replace("steps: 4", "steps: 2")
    fields = halve_micro_batch(opened(text, "t4").run).fields
    assert (fields["micro_batch_size"], fields["gradient_accumulation_steps"]) == (2, 5)


def test_python_takes_paths_texts_and_mappings(tmp_path):
    import yaml

    path = tmp_path / "config.yml"
    path.write_text(BIG)
    options = {"gpu": "rtx-4090", "torch": "2.13"}
    by = [vramwise.predict(source, **options).needs for source in (path, str(path), BIG, yaml.safe_load(BIG))]
    assert by[0] == by[1] == by[2] == by[3]
    for source in (BIG, yaml.safe_load(BIG)):
        (report,) = vramwise.check(source, **options)
        assert report.path == "<text>"
        assert {found.rule for found in report.findings} == {
            found.rule for found in vramwise.check(path, **options)[0].findings
        }


def test_an_upgrade_is_a_what_if(tmp_path, vramwise):
    config = tmp_path / "config.yml"
    config.write_text(BIG + "optimizer: muon_8bit\n")
    words = ("predict", config, "--gpu", "h100", "--with", "axolotl==0.19.0", "--what-if", "axolotl==0.21.0")
    done = vramwise(*words, "--format", "json")
    found = json.loads(done.stdout)
    assert found["stack"]["axolotl"]["version"] == "0.19.0"
    assert found["what_if"]["stack"]["axolotl"]["version"] == "0.21.0"
    assert "unknown-optimizer" in {one["rule"] for one in found["what_if"]["gone_findings"]}
    assert "gone: error unknown-optimizer" in vramwise(*words).output


def test_opening_reads_a_file_once(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(BIG)
    subject = open_subject(path, Options(gpu="rtx-4090"))
    path.unlink()
    check_subject(subject, Policy(predicts=True))
    fix_subject(subject)
    subject.prediction()


def test_of_many_files_no_events_are_kept(tmp_path):
    for name in ("a.yml", "b.yml"):
        (tmp_path / name).write_text(BIG)
    options = {"gpu": "h100", "predict": True}
    (alone,) = vramwise.check(tmp_path / "a.yml", **options)
    reports = [
        *vramwise.check(tmp_path, **options),
        *(report.remaining for report in vramwise.fix(tmp_path, **options)),
    ]
    assert len(reports) == 4
    for report in reports:
        assert report.prediction.needs == alone.prediction.needs
        assert not report.prediction.short_timeline.events


def test_what_was_decided_beyond_the_config_does_not_outlive_it():
    subject = opened(BIG, "a100-80gb")
    larger = subject.with_run(subject.run.changed(micro_batch_size=4))
    assert larger.prediction().needs != subject.prediction().needs
    assert larger.with_document(subject.document).prediction().needs == subject.prediction().needs
