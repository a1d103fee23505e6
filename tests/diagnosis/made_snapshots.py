"""Torch snapshots of our own making: a script of requests and frees played into the allocator, with stacks."""

import pickle

from vramwise.allocator.settings import parse_settings
from vramwise.recordings.snapshot import write_snapshot
from vramwise.timeline import Action, Event, Phase, Tag, Timeline

MIB = 1024**2
SITE = "/usr/lib/python3.11/site-packages"

# Innermost call first, as torch records them.
STACKS = {
    "weights": [
        ("torch/nn/modules/linear.py", "__init__"),
        ("transformers/models/llama/modeling_llama.py", "__init__"),
    ],
    "activations": [
        ("transformers/models/llama/modeling_llama.py", "forward"),
        ("transformers/trainer.py", "training_step"),
    ],
    "optimizer": [("torch/optim/adamw.py", "_init_group"), ("torch/optim/optimizer.py", "step")],
    "logits": [
        ("torch/nn/functional.py", "cross_entropy"),
        ("transformers/loss/loss_utils.py", "ForCausalLMLoss"),
        ("transformers/models/llama/modeling_llama.py", "forward"),
    ],
    "gradients": [("torch/autograd/__init__.py", "backward"), ("transformers/trainer.py", "training_step")],
    # Checkpointing's second forward pass, in autograd's thread.
    "recomputed": [
        ("transformers/models/llama/modeling_llama.py", "forward"),
        ("torch/utils/checkpoint.py", "recompute_fn"),
        ("torch/utils/checkpoint.py", "unpack_hook"),
    ],
    "autograd": [],
    "kept": [("my_metrics.py", "update"), ("train.py", "main")],
}


def frames(name):
    return [
        {"filename": f"{SITE}/{file}" if "/" in file else file, "name": function, "line": 7}
        for file, function in STACKS[name]
    ]


class Script:
    """Requests and frees by name."""

    def __init__(self):
        self.events, self.tags, self.count = [Event(Action.PHASE, 0, 0, 0, 0)], [], 0

    def alloc(self, size_bytes, stack):
        self.count += 1
        self.tags.append(Tag(stack, stack))
        self.events.append(Event(Action.ALLOC, self.count, size_bytes, 0, len(self.tags) - 1))
        return self.count

    def free(self, tensor):
        self.events.append(Event(Action.FREE, tensor, 0, 0, 0))

    def steps(self, count, keep=0):
        """Ordinary steps: some activations made and freed; `keep` bytes of each are kept."""
        for _ in range(count):
            made = [self.alloc(4 * MIB, "activations") for _ in range(20)]
            if keep:
                self.alloc(keep, "kept")
            for tensor in made:
                self.free(self.alloc(1 * MIB, "gradients"))
                self.free(tensor)

    def snapshot(self, *, limit_bytes, settings=""):
        """The pickle, as torch would have dumped it at the failure."""
        timeline = Timeline(events=self.events, tags=self.tags, phases=[Phase("run", 0)])
        parsed = parse_settings(settings, (2, 11))
        data = pickle.loads(write_snapshot(timeline, parsed, torch=(2, 11), limit_bytes=limit_bytes))
        self._put_stacks(data["device_traces"][0])
        return data

    def _put_stacks(self, entries):
        """Allocations come in the script's order, and so do their stacks."""
        tags = iter(self.tags)
        last = None
        for entry in entries:
            if entry["action"] == "alloc" or entry["action"] == "oom":
                last = next(tags)
            entry["frames"] = frames(last.category) if last and entry["action"] in ("alloc", "oom") else []


def write(path, data):
    path.write_bytes(pickle.dumps(data, protocol=4))
    return str(path)


def leaking():
    script = Script()
    for _ in range(20):
        script.alloc(20 * MIB, "weights")
    script.steps(60, keep=16 * MIB)
    return script.snapshot(limit_bytes=1200 * MIB, settings="expandable_segments:True")


def fragmented():
    script = Script()
    script.alloc(20 * MIB, "weights")
    for row in range(8):
        buffer = script.alloc((800 + 4 * row) * MIB, "activations")
        script.free(buffer)
        script.alloc(450 * MIB, "weights")
    script.steps(10)
    script.alloc(2500 * MIB, "activations")
    return script.snapshot(limit_bytes=7500 * MIB)


def optimizer_step():
    script = Script()
    for _ in range(40):
        script.alloc(50 * MIB, "weights")
    script.steps(3)
    for _ in range(40):
        script.alloc(50 * MIB, "gradients")
    for _ in range(80):
        script.alloc(50 * MIB, "optimizer")
    return script.snapshot(limit_bytes=6000 * MIB, settings="expandable_segments:True")


def too_much_logits():
    script = Script()
    for _ in range(10):
        script.alloc(50 * MIB, "weights")
    script.steps(2)
    script.alloc(2000 * MIB, "activations")
    script.alloc(4000 * MIB, "logits")
    return script.snapshot(limit_bytes=4000 * MIB, settings="expandable_segments:True")


def no_failure():
    script = Script()
    script.alloc(100 * MIB, "weights")
    script.steps(5)
    return script.snapshot(limit_bytes=4000 * MIB)
