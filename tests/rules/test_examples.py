"""Every rule's own examples: `bad` fires, `good` does not, and fixing `bad` silences the rule."""

import importlib
import pkgutil
import shlex

import pytest

import vramwise.rules
import vramwise.trainers
from opened import check_document, example_document, make_target, trainer_name
from vramwise.documents.edit import apply_edits
from vramwise.rules.base import Rule


def _all_rules() -> list[Rule]:
    rooms = (vramwise.rules, vramwise.trainers)
    names = [one.name for room in rooms for one in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    modules = [importlib.import_module(name) for name in names if "rules" in name.split(".")[1:]]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]


ALL = _all_rules()


def _options(line: str) -> dict:
    words = shlex.split(line)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    options: dict = {word[2:].replace("-", "_"): value for word, value in pairs if word != "--with"}
    options["versions"] = tuple(value for word, value in pairs if word == "--with")
    if "gpus" in options:
        options["gpus"] = int(options["gpus"])
    return options


def _judge(rule: Rule, text: str, options: str):
    document = example_document(text)
    target = make_target(env={}, look_around=False, trainer=trainer_name(document), **_options(options))
    return document, target, check_document(document, target, [rule], predicts="memory" in rule.needs)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_bad_fires(rule):
    _, _, report = _judge(rule, rule.bad, rule.options)
    assert report.error is None or rule.id in ("wrong-type", "argument-type")
    assert [found.rule for found in report.findings], f"{rule.id}: the bad example is not found"
    for found in report.findings:
        assert found.message
        assert not found.message.endswith(".")


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_good_is_silent(rule):
    _, _, report = _judge(rule, rule.good, rule.good_options)
    assert report.error is None
    assert [found.message for found in report.findings] == []
    assert report.skipped == [], "the good example must be judged, not skipped"


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_fixing_bad_silences_the_rule(rule):
    document, target, report = _judge(rule, rule.bad, rule.options)
    fixes = [found.fix for found in report.findings if found.fix is not None]
    if not fixes:
        return  # a rule without a fix: nothing to apply
    for fix in fixes:
        document = apply_edits(document, fix.edits)
    unfixable = sum(found.fix is None for found in report.findings)
    assert len(check_document(document, target, [rule]).findings) <= unfixable


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_is_documented(rule):
    assert rule.title.endswith(".")
    assert len(rule.documentation) > 80, "say why it hurts and what to do"


def test_ids_are_unique_and_registered():
    ids = [rule.id for rule in ALL]
    assert len(set(ids)) == len(ids)
    assert {rule.id for rule in vramwise.rules()} == set(ids)
