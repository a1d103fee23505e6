"""Print what one llama block allocates in a training step, in order: the events behind docs/ghost.md.

    python scripts/block_events.py            # the events
    python scripts/block_events.py --write    # puts them, and the code that makes them, into docs/ghost.md
    python scripts/block_events.py --check    # only says whether that page is current

The run is a full fine-tune without checkpointing, one row of 1024 tokens. In the page, `<!-- code: module:function -->`
and `<!-- output -->` are each followed by a block that is written here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from textwrap import dedent

from generated import ROOT, write_or_check
from vramwise.opening.options import Options, PredictOptions, Text
from vramwise.timeline import Action, Event, Phase, Timeline
from vramwise.units import MIB
from vramwise.verbs.predict import opened

PAGE = ROOT / "docs" / "ghost.md"
CONFIG = """\
base_model: meta-llama/Llama-3.2-1B
datasets: [{path: data.jsonl, type: completion}]
sequence_len: 1024
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 1
bf16: true
optimizer: adamw_torch_fused
attn_implementation: flash_attention_2
"""
BLOCK, STEP = "layers.1", 2
_CODE = re.compile(r"(<!-- code: ([\w.]+):([\w.]+) -->\n)```python\n.*?^```\n", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(r"(<!-- output -->\n)```\n.*?^```\n", re.DOTALL | re.MULTILINE)


def run() -> Timeline:
    """Return the predicted run."""
    options = Options(gpu="h100", torch="2.11", versions=("axolotl==0.21.0",), text_alone=True, data="")
    return opened(Text(CONFIG), options, PredictOptions(online=False)).prediction().timeline


def lines(timeline: Timeline) -> Iterator[str]:
    """Yield the block's allocations of one step: number, size, when each is freed, and what it is for."""
    freed = {event.tensor: at for at, event in enumerate(timeline.events) if event.action == Action.FREE}
    phase_at, phase, made = [], None, []
    for at, event in enumerate(timeline.events):
        if event.action == Action.PHASE:
            phase = timeline.phases[event.tag]
        phase_at.append(phase)
        inside = phase is not None and phase.step == STEP and event.action == Action.ALLOC
        if inside and re.search(rf"\b{re.escape(BLOCK)}\b", timeline.tags[event.tag].label):
            made.append(at)
    numbers = {at: number for number, at in enumerate(made, 1)}
    name = ""
    for at in made:
        event, phase = timeline.events[at], phase_at[at]
        if phase.name != name:
            name = phase.name
            yield from ([""] if numbers[at] > 1 else [])
            yield name
        until = _until(freed.get(event.tensor), phase_at, made, at)
        yield f"{numbers[at]:4d} {_size(event.size_bytes):>10}  {until:18s} {_tag(timeline, event)}"


def _tag(timeline: Timeline, event: Event) -> str:
    tag = timeline.tags[event.tag]
    return f"{tag.category}: {tag.label}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.2f} MiB" if size_bytes >= MIB / 100 else f"{size_bytes} B"


def _until(end: int | None, phase_at: list[Phase | None], made: list[int], at: int) -> str:
    """Return when a tensor is freed, in words."""
    if end is None:
        return "kept"
    if phase_at[end] != phase_at[at]:
        return f"freed in {phase_at[end].name}"
    before = sum(one < end for one in made)
    return f"freed after {before}"


def page(text: str) -> str:
    """Return the page with the code and the events as they are now."""
    text = _CODE.sub(lambda found: f"{found[1]}```python\n{_source(found[2], found[3])}```\n", text)
    output = "\n".join(lines(run()))
    return _OUTPUT.sub(lambda found: f"{found[1]}```\n$ python scripts/block_events.py\n{output}\n```\n", text)


def _source(module: str, name: str) -> str:
    return dedent(inspect.getsource(attrgetter(name)(import_module(module))))


def main() -> int:
    """Print the events, or write or check the page."""
    if not {"--write", "--check"} & set(sys.argv):
        print("\n".join(lines(run())))
        return 0
    return write_or_check({PAGE: page(PAGE.read_text(encoding="utf-8"))})


if __name__ == "__main__":
    sys.exit(main())
