"""Run rules over a RunSpec: findings in file order, and which rules were skipped for lack of a card or model.

A file suppresses a finding with `# vramwise: ignore[rule-id] reason` on its line. A finding about the file as a whole,
such as a missing key, is suppressed by such a comment on any line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Protocol

from vramwise.errors import INTERNAL_ERROR, describe_internal_error
from vramwise.rules.base import Hit, Rule
from vramwise.timeline import MemoryReport
from vramwise.types import START, Change, Edit, Finding, Fix, Place, RunSpec, Severity, Skipped

# A config has a few dozen settings. A rule that finds the same fault a hundred times has the wrong kind of file, and
# looking up names, places and remedies for thousands would take minutes.
MAX_HITS = 100


class Spelt(Protocol):
    """The parts of a trainer's spelling that are needed here."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of the file."""
        ...

    @property
    def title(self) -> str:
        """What they write, if the change's own title would say something else."""
        ...


Spell = Callable[[RunSpec, Change], Spelt | None]


def judge(
    run: RunSpec,
    memory: MemoryReport | None,
    rules: Iterable[Rule],
    spell: Spell,
    *,
    lacking: str = "memory",
    pedantic: Collection[str] = (),
) -> tuple[list[Finding], list[Skipped]]:
    """Return every finding, sorted by place, and every skipped rule with what it needs.

    `spell` translates a change into the keys of the run's trainer. `lacking`: why there is no prediction: "memory" if
    it was not requested, "model" if the model is unknown. `pedantic`: the rules that also report harmless issues.
    """
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    have = available(run, memory)
    for rule in rules:
        missing = sorted(lacking if need == "memory" else need for need in rule.needs - have)
        if missing:
            skipped.append(Skipped(rule=rule.id, needs=tuple(missing)))
            continue
        findings.extend(_findings(run, memory, rule, spell, pedantic=rule.id in pedantic))
    findings.sort(key=lambda found: (found.place.line, found.place.column, -found.severity.rank, found.rule))
    return findings, skipped


def available(run: RunSpec, memory: MemoryReport | None) -> frozenset[str]:
    """Return what this run offers to rules: "gpu" means a card with known capability."""
    have = set()
    if run.target.gpu is not None and run.target.gpu.known:
        have.add("gpu")
    if memory is not None:
        have |= {"memory", "model"}
    return frozenset(have)


def _findings(run: RunSpec, memory: MemoryReport | None, rule: Rule, spell: Spell, *, pedantic: bool) -> list[Finding]:
    """Return what one rule found. A rule that raises becomes a finding itself, so that the others are not lost."""
    found: list[Finding] = []
    try:
        hits = (hit for hit in rule.run(run, memory) if (pedantic or not hit.pedantic) and not _of_open(run, hit))
        found.extend(_finding(run, rule, hit, spell) for hit in islice(hits, MAX_HITS + 1))
    except Exception as error:
        return [*found, internal_error(f"the rule {rule.id}", error)]
    if len(found) > MAX_HITS:
        found[MAX_HITS] = replace(
            found[MAX_HITS], fix=None, message=f"{rule.id}: further findings are not shown after the first {MAX_HITS}"
        )
    return found


def internal_error(where: str, error: Exception) -> Finding:
    """Return an internal error as a finding about the whole file."""
    message = describe_internal_error(where, error)
    return Finding(rule=INTERNAL_ERROR, severity=Severity.ERROR, message=message, key=None, place=START)


def _finding(run: RunSpec, rule: Rule, hit: Hit, spell: Spell) -> Finding:
    found = _certain(run, rule, hit, spell)
    if not rule.of_release or not run.target.stack.unknown:
        return found
    # Another release may do something else, so this is no error, and nothing is changed for it unasked.
    found = replace(found, fix=found.fix and replace(found.fix, safe=False))
    if found.severity is not Severity.ERROR:
        return found
    return replace(found, severity=Severity.WARNING, message=f"{found.message} (uncertain with {_unknown(run)})")


def _unknown(run: RunSpec) -> str:
    return " and ".join([f"{name} {release.meant}" for name, release in run.target.stack.unknown.items()])


def _certain(run: RunSpec, rule: Rule, hit: Hit, spell: Spell) -> Finding:
    return Finding(
        rule=rule.id,
        severity=hit.severity or rule.severity,
        message=hit.message,
        key=_key(run, hit),
        place=_place(run, hit),
        fix=hit.fix if hit.change is None else _spelt(run, hit, hit.change, spell),
        still_runs=rule.still_runs or hit.still_runs,
        comes_first=rule.comes_first,
    )


def _key(run: RunSpec, hit: Hit) -> str | None:
    """Return the key that decided the field, if one is written; otherwise the trainer's own key for it."""
    if hit.field is None:
        return hit.key
    origin = run.origins.get(hit.field)
    if origin is not None and origin.key is not None:
        return origin.key
    return run.keys.get(hit.field, hit.key)


def _of_open(run: RunSpec, hit: Hit) -> bool:
    """Whether a hit is about a value that the script leaves open: the assumed default says nothing."""
    script, key = run.config.document.script, _key(run, hit)
    return script is not None and key is not None and script.leaves_open(key)


def _spelt(run: RunSpec, hit: Hit, change: Change, spell: Spell) -> Fix | None:
    """Return the change as the trainer writes it; None if its file cannot express it."""
    spelling = spell(run, change)
    if spelling is None or not spelling.edits:
        return None
    title = spelling.title or change.title
    return Fix(title=title, safe=change.safe and not hit.by_request, edits=spelling.edits, change=change)


def _place(run: RunSpec, hit: Hit) -> Place:
    if hit.place is not None:
        return hit.place
    if hit.field is None and hit.key is not None:
        # as the file has it: another trainer's key may have the name of a field
        written = run.config.place(hit.key)
        if written is not None:
            return written
    names = [name for name in (hit.field, hit.key, *_blocks(hit.key or "")) if name]
    places: Iterator[Place | None] = (_where(run, name) for name in names)
    return next((place for place in places if place is not None), START)


def _blocks(key: str) -> Iterator[str]:
    """Yield the blocks that contain a dotted key, innermost first: a missing key is reported there."""
    while "." in key:
        key = key.rpartition(".")[0]
        yield key


def _where(run: RunSpec, name: str) -> Place | None:
    """Return the place of a field or key: from the field's origin, or by looking up the key."""
    origin = run.origins.get(name)
    if origin is not None and origin.place is not None:
        return origin.place
    return run.config.place(run.keys.get(name, name))


_COMMENT = re.compile(r"#\s*vramwise:\s*ignore\[([^\]]*)\]")


def drop_suppressed(findings: Iterable[Finding], text: str) -> list[Finding]:
    """Return the findings that no comment suppresses: on their line, or anywhere if about the file as a whole."""
    ignored = ignored_by_line(text)
    anywhere = frozenset[str]().union(*ignored.values())

    def silencing(found: Finding) -> frozenset[str]:
        return anywhere if found.line is None else ignored.get(found.line, frozenset())

    return [found for found in findings if found.rule not in silencing(found)]


def ignored_by_line(text: str) -> dict[int, frozenset[str]]:
    """Return line number → the rule ids that a comment on it names."""
    if "vramwise:" not in text:
        return {}
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found = ((number, _COMMENT.findall(line)) for number, line in enumerate(lines, 1))
    return {number: frozenset().union(*map(_ids, names)) for number, names in found if names}


def _ids(names: str) -> frozenset[str]:
    return frozenset(name.strip() for name in names.split(","))
