"""Real configs and the verdicts Axolotl 0.19 and 0.21 gave them: where it refuses, so do we; where it accepts, no error but traps.

The corpus is other people's and stays outside the tree; without it these tests have nothing to read and are skipped.
"""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from installed import needs_corpus
from vramwise import Options, check, rules
from vramwise.documents.edit import apply_edits
from vramwise.trainers.axolotl.schema import schema_of_version
from vramwise.types import Severity, split_key

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpus"
DATA = Path(__file__).parent / "data"
CARDS = {"sm90-1gpu": {"gpu": "h100"}, "sm75-2gpu": {"gpu": "t4", "gpus": 2}}
# Version → where what it said about each file is recorded (scripts/axolotl_verdicts.py).
RECORDED = {"0.19.0": CORPUS / "axolotl-verdicts-{}.json", "0.21.0": DATA / "axolotl-0.21-verdicts-{}.json"}
# Why Axolotl refused, where that has nothing to do with the config: packages missing on the machine it ran on.
OUT_OF_FIELD = ("is not installed", "No module named")
versions_and_cards = pytest.mark.parametrize(("version", "card"), [(one, card) for one in RECORDED for card in CARDS])

pytestmark = needs_corpus


# No training config: where to rent machines.
NOT_TRAINING = {"cloud__baseten.yaml"}


def options(version, card):
    return {**CARDS[card], "versions": (f"axolotl=={version}",)}


@cache
def reports(version, card):
    found = check([str(CORPUS / "axolotl")], **options(version, card))
    return {Path(report.path).name: report for report in found}


@cache
def verdicts(version, card):
    records = json.loads(Path(str(RECORDED[version]).format(card)).read_text())
    return [record for record in records if record["file"] not in NOT_TRAINING]


def errors(report):
    return {found.rule for found in report.findings if found.severity is Severity.ERROR}


@pytest.mark.parametrize("version", RECORDED)
def test_every_file_is_read(version):
    found = reports(version, "sm90-1gpu")
    files = {path.name for path in (CORPUS / "axolotl").glob("*.y*ml")}
    assert {name for name, report in found.items() if report.foreign} == NOT_TRAINING
    assert len(files) >= 194
    unread = {name: str(report.error) for name, report in found.items() if report.run is None and not report.foreign}
    assert unread == {}


@versions_and_cards
def test_agreement_with_axolotl(version, card, capsys):
    """The table: what Axolotl said against what we say. Held: no refusal missed, no error but documented traps."""
    beyond = {rule.id for rule in rules() if rule.beyond_trainer}
    table, missed, undocumented, traps = Counter(), [], [], Counter()
    for verdict in verdicts(version, card):
        found = errors(reports(version, card)[verdict["file"]])
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
        print(f"\n{card}: Axolotl {version} × vramwise")
        for (theirs, ours), count in sorted(table.items()):
            print(f"  {theirs:<24} {ours:<11} {count:>4}")
        for rule, count in traps.most_common():
            print(f"    trap beyond Axolotl: {rule} in {count}")
    assert missed == []
    assert undocumented == []


@versions_and_cards
def test_resolved_values_agree_with_axolotl(version, card):
    """Where the verdict recorded what Axolotl resolved, our RunSpec says the same."""
    wrong = []
    for verdict in verdicts(version, card):
        if not verdict["ok"]:
            continue
        run, theirs = reports(version, card)[verdict["file"]].run, verdict["resolved"]
        ours = {
            "pad_to_sequence_len": run.shapes.pad_to_sequence_len,
            "gradient_checkpointing": run.savings.gradient_checkpointing,
            "optimizer": run.optimizer.name,
            "attn_implementation": run.kernels.attn_implementation,
        }
        if run.sharding.is_fsdp:  # the schema's default is there without FSDP too
            ours["fsdp_version"] = run.sharding.kind.removeprefix("fsdp")
        if run.adapter.kind and not any(
            key.startswith("lora_") and key.endswith("_kernel") for key in run.config.values
        ):
            ours["lora_mlp_kernel"] = run.adapter.lora_kernels
        for name, value in ours.items():
            expected = theirs.get(name)
            if expected == "None":  # unset in the schema: our value is what the libraries then do
                continue
            if str(value) != expected:
                wrong.append((verdict["file"], name, value, expected))
    assert wrong == []


@pytest.mark.parametrize("version", RECORDED)
def test_unknown_keys_are_those_axolotl_drops(version):
    """Keys of listed plugins aside: where Axolotl ran, some plugins could not be imported and their keys were dropped."""
    wrong = []
    plugin_keys = schema_of_version(version).plugin_keys()
    for verdict in verdicts(version, "sm90-1gpu"):
        if verdict["unknown"] is None:
            continue
        report = reports(version, "sm90-1gpu")[verdict["file"]]
        ours = {found.key for found in report.findings if found.rule in ("unknown-key", "plugin-key-without-plugin")}
        listed = report.document.values.get("plugins") or []
        held = {key for key, value in report.document.values.items() if value not in (None, False) and key != "debug"}
        missing = {key for key in verdict["unknown"] if key not in ours and plugin_keys.get(key) not in listed}
        missing &= held  # what holds nothing is said to the pedantic alone
        if missing:
            wrong.append((verdict["file"], missing))
    assert wrong == []


@versions_and_cards
def test_fixes_change_only_the_intended_keys(version, card):
    for name, report in reports(version, card).items():
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


@pytest.mark.parametrize("version", RECORDED)
def test_fix_twice_is_once(version):
    from vramwise.opening.subject import open_subject
    from vramwise.verbs.fix import fix_subject

    for path in sorted((CORPUS / "axolotl").glob("*.y*ml")):
        if path.name in NOT_TRAINING:
            continue
        once = fix_subject(open_subject(path, Options(**options(version, "sm90-1gpu"))), unsafe=True).subject
        assert fix_subject(once, unsafe=True).subject.document.text == once.document.text, path.name
