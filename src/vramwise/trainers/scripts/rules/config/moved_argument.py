"""moved-argument"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.scripts.rules.places import at_fact
from vramwise.types import RunSpec, Severity

_FACT = "trainer argument "
_HEAD = "from trl import SFTConfig, SFTTrainer\n\n"
# The release that removed them; before, they were deprecated (TRL 0.9 to 0.12).
_GONE = "0.13"


@rule(
    id="moved-argument",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="config",
    options="--with trl==1.16.0",
    bad=f'{_HEAD}trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(), max_seq_length=2048, packing=True)\n',
    good=f'{_HEAD}trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(max_length=2048, packing=True))\n',
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An argument is passed to the trainer that belongs into its config since TRL 0.13.

    Up to TRL 0.12 the trainers took `max_seq_length`, `packing`, `dataset_text_field`, `beta`, `max_length` and their
    kin themselves. Since 0.13 the call stops with `TypeError: … got an unexpected keyword argument`.

    Pass them to `SFTConfig`, `DPOConfig`…, where `max_seq_length` is called `max_length` since TRL 0.20. A script that
    needs an old release should pin it: vramwise reads `pip install trl==0.12.2` in notebooks, the
    requirements, `pyproject.toml` and lock files of the repository, and `--with`.
    """
    # Seen in: vitali87/llm-shell train_ms_swift.py (SFTTrainer), mzbac/llama2-fine-tune dpo_trainer.py (DPOTrainer).
    script = run.config.document.script
    if script is None or "unsloth" in script.facts:  # Unsloth's trainers still accept them
        return
    release = run.target.stack.releases.get("trl")
    if release is None or run.target.stack.older_than("trl", _GONE):
        return
    assumed = release.origin.kind == "assumed"
    for fact in script.facts:
        if fact.startswith(_FACT):
            name = fact.removeprefix(_FACT)
            end = f"; TRL {release.version} is assumed, no version is pinned" if assumed else ""
            yield Hit(
                place=at_fact(script, fact),
                message=f"{name} is passed to the trainer: TRL 0.13 and later stop with a TypeError{end}",
                severity=Severity.WARNING if assumed else None,
            )
