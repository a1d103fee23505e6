"""Real configs and the verdicts Axolotl 0.19 gave them: where it refuses, so do we; where it accepts, no error but known traps.

The corpus is other people's and stays outside the tree; without it these tests have nothing to read and are skipped.
"""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from vramwise import Options, check, rules
from vramwise.documents.edit import apply_edits
from vramwise.trainers.axolotl.schema import plugin_keys
from vramwise.types import Severity, split_key

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpus"
CARDS = {
    "sm90-1gpu": Options(gpu="h100", versions=("axolotl==0.19.0",)),
    "sm75-2gpu": Options(gpu="t4", gpus=2, versions=("axolotl==0.19.0",)),
}
# Why Axolotl refused, where that has nothing to do with the config: packages missing on the machine it ran on.
OUT_OF_FIELD = ("is not installed",)

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of other people's configs is not here")


# No training config: where to rent machines.
NOT_TRAINING = {"cloud__baseten.yaml"}


@cache
def reports(card):
    return {Path(report.path).name: report for report in check([str(CORPUS / "axolotl")], CARDS[card])}


@cache
def verdicts(card):
    return json.loads((CORPUS / f"axolotl-verdicts-{card}.json").read_text())


def errors(report):
    return {found.rule for found in report.findings if found.severity is Severity.ERROR}


def test_every_file_is_read():
    found = reports("sm90-1gpu")
    files = {path.name for path in (CORPUS / "axolotl").glob("*.y*ml")}
    assert {name for name, report in found.items() if report.foreign} == NOT_TRAINING
    assert len(files) >= 194
    unread = {name: str(report.error) for name, report in found.items() if report.run is None and not report.foreign}
    assert unread == {}


@pytest.mark.parametrize("card", CARDS)
def test_agreement_with_axolotl(card, capsys):
    """The table: what Axolotl said against what we say. Held: no refusal missed, no error but documented traps."""
    beyond = {rule.id for rule in rules() if rule.beyond_trainer}
    table, missed, undocumented, traps = Counter(), [], [], Counter()
    for verdict in verdicts(card):
        found = errors(reports(card)[verdict["file"]])
        reasons = [str(error[-1]) for error in verdict["errors"]]
        foreign = bool(reasons) and all(any(words in reason for words in OUT_OF_FIELD) for reason in reasons)
        theirs = "accepts" if verdict["ok"] else "refuses (not our field)" if foreign else "refuses"
        ours = "error" if found - beyond else "known trap" if found else "no error"
        table[theirs, ours] += 1
        if theirs == "refuses" and not found:
            missed.append((verdict["file"], reasons))
        if verdict["ok"] and found - beyond:
            undocumented.append((verdict["file"], sorted(found - beyond)))
        if verdict["ok"]:
            traps.update(found & beyond)
    with capsys.disabled():
        print(f"\n{card}: Axolotl × vramwise")
        for (theirs, ours), count in sorted(table.items()):
            print(f"  {theirs:<24} {ours:<11} {count:>4}")
        for rule, count in traps.most_common():
            print(f"    trap beyond Axolotl: {rule} in {count}")
    assert missed == []
    assert undocumented == []


@pytest.mark.parametrize("card", CARDS)
def test_resolved_values_agree_with_axolotl(card):
    """Where the verdict recorded what Axolotl resolved, our RunSpec says the same."""
    wrong = []
    for verdict in verdicts(card):
        if not verdict["ok"]:
            continue
        run, theirs = reports(card)[verdict["file"]].run, verdict["resolved"]
        ours = {
            "pad_to_sequence_len": run.pad_to_sequence_len,
            "gradient_checkpointing": run.gradient_checkpointing,
            "optimizer": run.optimizer,
            "attn_implementation": run.attn_implementation,
        }
        for name, value in ours.items():
            expected = theirs.get(name)
            if expected == "None":  # unset in the schema: our value is what the libraries then do
                continue
            if str(value) != expected:
                wrong.append((verdict["file"], name, value, expected))
    assert wrong == []


def test_unknown_keys_are_those_axolotl_drops():
    """Keys of listed plugins aside: where Axolotl ran, some plugins could not be imported and their keys were dropped."""
    wrong = []
    for verdict in verdicts("sm90-1gpu"):
        if verdict["unknown"] is None:
            continue
        report = reports("sm90-1gpu")[verdict["file"]]
        ours = {found.key for found in report.findings if found.rule in ("unknown-key", "plugin-key-without-plugin")}
        listed = report.document.values.get("plugins") or []
        missing = {key for key in verdict["unknown"] if key not in ours and plugin_keys().get(key) not in listed}
        if missing:
            wrong.append((verdict["file"], missing))
    assert wrong == []


@pytest.mark.parametrize("card", CARDS)
def test_fixes_change_only_the_intended_keys(card):
    for name, report in reports(card).items():
        for found in report.findings:
            if found.fix is not None:
                _check_fix(name, report.document, found.fix)


def _check_fix(name, before, fix):
    after = apply_edits(before, fix.edits)
    touched = {split_key(edit.key)[0] for edit in fix.edits}
    changed = {key for key in before.values.keys() | after.values.keys() if _value(before, key) != _value(after, key)}
    assert changed <= touched, (name, fix)
    assert apply_edits(after, fix.edits).text == after.text, (name, fix)
    untouched = [line for line in before.text.splitlines() if not _mentions(line, before, touched)]
    kept = iter(after.text.splitlines())
    assert all(line in kept for line in untouched), (name, fix, "an untouched line changed or moved")


def _mentions(line, document, touched):
    """Whether the line belongs to the entry of a touched key."""
    return any(line in _entry(document, key) for key in touched)


def _entry(document, key):
    span = document.spans.get((key,))
    if span is None:
        return ()
    start = document.text.rfind("\n", 0, span.key_start) + 1
    end = document.text.find("\n", span.value_end)
    return document.text[start : end if end >= 0 else None].splitlines()


def _value(document, key):
    return repr(document.values.get(key, "absent"))


def test_fix_twice_is_once():
    from vramwise.mending import mend
    from vramwise.subject import open_subject

    for path in sorted((CORPUS / "axolotl").glob("*.y*ml")):
        if path.name in NOT_TRAINING:
            continue
        once = mend(open_subject(path, CARDS["sm90-1gpu"]), unsafe=True).subject
        assert mend(once, unsafe=True).subject.document.text == once.document.text, path.name
