"""Run rules over a RunSpec: findings in file order, and which rules could not judge for lack of a card or model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramwise.rules.base import Hit, Rule
from vramwise.timeline import MemoryReport
from vramwise.types import START, Finding, Place, RunSpec, Skipped


def judge(
    run: RunSpec, memory: MemoryReport | None, rules: Iterable[Rule], *, lacking: str = "memory"
) -> tuple[list[Finding], list[Skipped]]:
    """Every finding, sorted by place; every rule that was skipped, with what it needs.

    `lacking`: what is to blame where there is no prediction: "memory", nobody asked for it, or "model", not known.
    """
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    have = available(run, memory)
    for rule in rules:
        missing = sorted(lacking if need == "memory" else need for need in rule.needs - have)
        if missing:
            skipped.append(Skipped(rule=rule.id, needs=", ".join(missing)))
            continue
        findings.extend(_finding(run, rule, hit) for hit in rule.run(run, memory))
    findings.sort(key=lambda found: (found.place.line, found.place.column, -found.severity.rank, found.rule))
    return findings, skipped


def available(run: RunSpec, memory: MemoryReport | None) -> frozenset[str]:
    """What this run can offer to the rules: "gpu" means a card whose capability is known."""
    have = set()
    if run.target.gpu is not None and run.target.gpu.known:
        have.add("gpu")
    if memory is not None:
        have |= {"memory", "model"}
    return frozenset(have)


def _finding(run: RunSpec, rule: Rule, hit: Hit) -> Finding:
    return Finding(
        rule=rule.id,
        severity=hit.severity or rule.severity,
        message=hit.message,
        key=hit.key,
        place=_place(run, hit),
        fix=hit.fix,
    )


def _place(run: RunSpec, hit: Hit) -> Place:
    places: Iterator[Place | None] = (run.config.place(key) for key in (hit.key, *hit.near) if key)
    return next((place for place in places if place is not None), START)
