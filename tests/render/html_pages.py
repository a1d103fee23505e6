"""Runs in miniature and their pages, for the tests of the HTML report."""

from vramwise.allocator.profile import profile_timeline
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import AllocatorSettings
from vramwise.render.html import render_html
from vramwise.render.html.data import KNOWN
from vramwise.timeline import Action, Event, Phase, Tag, Timeline
from vramwise.types import GpuSpec
from vramwise.units import GIB, MIB

CARD = GpuSpec(name="RTX 4090", vendor="nvidia", memory_bytes=24 * GIB, capability=(8, 9), bf16=True, fp8=True)


class Writer:
    """Writes a timeline down."""

    def __init__(self, name, phase):
        self.name, self.phase = name, phase
        self.events, self.phases, self.count = [], [], 0

    def enter(self, title, step):
        self.events.append(Event(Action.PHASE, 0, 0, 0, len(self.phases)))
        self.phases.append(Phase(self.phase.replace("{}", title), step))

    def alloc(self, category, size_bytes):
        self.count += 1
        self.events.append(Event(Action.ALLOC, self.count, size_bytes, 0, KNOWN.index(category)))
        return self.count

    def free(self, tensor):
        self.events.append(Event(Action.FREE, tensor, 0, 0, 0))

    def timeline(self):
        tags = [Tag(category, self.name.replace("{}", category)) for category in KNOWN]
        return Timeline(events=self.events, tags=tags, phases=self.phases)


def training_run(steps=3, layers=8, name="all {}", phase="{}"):
    """Weights, then steps of forward, backward and optimizer; lengths change from step to step."""
    run = Writer(name, phase)
    run.enter("load", 0)
    for _ in range(layers):
        run.alloc("weights", 300 * MIB)
    for step in range(1, steps + 1):
        length = 30 + 7 * (step % 5)
        run.enter("forward", step)
        saved = [run.alloc("activations", length * 3 * MIB) for _ in range(layers)]
        logits = run.alloc("logits", length * 20 * MIB)
        run.enter("backward", step)
        run.free(logits)
        gradients = []
        while saved:
            gradients.append(run.alloc("gradients", 30 * MIB))
            run.free(saved.pop())
        run.enter("optimizer", step)
        if step == 1:
            run.alloc("optimizer", 2400 * MIB)
        for gradient in gradients:
            run.free(run.alloc("temporary", 30 * MIB))
            run.free(gradient)
    return run.timeline()


def page(run=None, *, gpu=CARD, findings=(), measured=(), limit_bytes=None, **words):
    """The page of a run, its profile and its report; `words` replace texts."""
    run = run or training_run()
    conditions = {"outside_bytes": 500 * MIB, "limit_bytes": limit_bytes}
    report = simulate(run, AllocatorSettings(text=words.pop("settings", "")), **conditions)
    profile = profile_timeline(run, AllocatorSettings(), **conditions)
    texts = {"title": "config.yml", "verdict": "needs 9 GiB: fits", "subtitle": "a model", "expected_error": "3 %"}
    texts |= {"assumptions": ["every sample is as long as allowed"], **words}
    html = render_html(profile=profile, report=report, gpu=gpu, findings=findings, measured=measured, **texts)
    return html, profile, report
