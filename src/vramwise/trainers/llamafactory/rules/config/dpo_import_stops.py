"""dpo-import-stops"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_TEXT = (
    "model_name_or_path: Qwen/Qwen3-4B\nstage: dpo\ndo_train: true\nfinetuning_type: lora\ndataset: dpo_en_demo\n"
    "template: qwen3\n"
)
_TRL = "--with trl==0.24.0"


@rule(
    id="dpo-import-stops",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="config",
    bad=_TEXT,
    good=_TEXT,
    options=f"--with transformers==5.6.0 {_TRL}",
    good_options=f"--with transformers==4.57.1 {_TRL}",
    beyond_trainer="LLaMA-Factory takes the file, loads the model and stops when it imports TRL's trainer.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Stage dpo stops when TRL 0.24 is imported beside transformers 5.

    TRL up to 0.24 asks transformers whether optional packages are there. transformers 5 answers with a pair, (False,
    None), which counts as true: TRL then imports mergekit, and where that is not installed stage dpo stops, after the
    model is loaded, with `No module named 'mergekit'`. LLaMA-Factory 0.9.5 allows no newer TRL, and a fresh
    installation takes both. Seen with these versions on a CPU and in three runs on a card. kto and rm are not
    concerned.

    Install a transformers below 5 that LLaMA-Factory takes (4.57.1, say). Where versions are not said but assumed, the
    finding is a warning: `--with transformers==…` or `--stack FILE` tells them.
    """
    stack = run.target.stack
    if run.objective.rl != "dpo" or stack.parts("transformers") < (5,) or not () < stack.parts("trl") <= (0, 24, 0):
        return
    releases = [stack.releases[name] for name in ("transformers", "trl")]
    known = all(release.origin.kind != "assumed" for release in releases)
    versions = f"TRL {releases[1].version} beside transformers {releases[0].version}"
    yield Hit(
        key="stage",
        message=f"stage dpo with {versions} stops with No module named 'mergekit', unless that is installed",
        severity=None if known else Severity.WARNING,
    )
