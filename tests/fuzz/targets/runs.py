"""What a training run leaves behind: its memory log → `report`, its plan → what a resumed run reads."""

import json

from tests.fuzz.mutate import bytes_changed, value_changed
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE

_GIB = 2**30
_PEAKS = {"peak_allocated_bytes": 15 * _GIB, "peak_reserved_bytes": 16 * _GIB}
_PREDICTED = {**_PEAKS, "outside_bytes": 0, "limit_bytes": None, "phases": [{"step": 1, "phase": "forward", **_PEAKS}]}
_START = {
    "kind": "start",
    "attempt": 1,
    "step": 0,
    "device": "cuda:0",
    "device_bytes": 24 * _GIB,
    "peaks": "phase",
    "max_steps": 5,
}
_SAMPLE = {
    "kind": "sample",
    "step": 1,
    "phase": "train",
    "width": 512,
    "allocated_bytes": 9 * _GIB,
    "reserved_bytes": 16 * _GIB,
    **_PEAKS,
    "retries": 0,
    "device_free_bytes": None,
}
_RECORDS = [
    {"kind": "decision", "what": "attempt", "attempt": 1, "micro_batch_size": 8, "gradient_accumulation_steps": 1},
    _START,
    {"kind": "decision", "what": "out-of-memory", "phase": "train", "step": 1, "next": "micro-batch 8 → 4"},
    {**_START, "attempt": 2, "predicted": _PREDICTED},
    *({**_SAMPLE, "step": step, "phase": phase} for step in (1, 2, 3) for phase in ("train", "optimizer")),
    {**_SAMPLE, "phase": "eval", "step": 3},
    {"kind": "warning", "rule": "memory-fragmented", "step": 3, "message": "5 GiB & more"},
    {"kind": "end", "attempt": 2, "step": 3},
]


def _records(rng):
    records = value_changed(rng, _RECORDS)
    rows = records if isinstance(records, list) else [records]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    if rng.random() < 0.15:
        return data[: rng.randint(0, len(data))]  # the writer was killed
    return bytes_changed(rng, data) if rng.random() < 0.3 else data


def _report(how):
    def run(bench, data):
        bench.write("out/memory.jsonl", data)
        getattr(bench, how)("report", "out")

    return run


_PLAN = {
    "config_path": "config.yml",
    "config_text": BASE,
    "output_dir": "out",
    "engine": "transformers",
    "attempt": 1,
    "resume_from": None,
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "eval_batch_size": 1,
    "effective_batch_size": 8,
    "sequence_len": 256,
    "pad_multiple": 64,
    "constant_shapes": True,
    "precision": "bf16",
    "weights_dtype": "bf16",
    "allocator": "",
    "memory_limit_bytes": None,
    "predicted": _PREDICTED,
    "guard": {},
    "decisions": [{"name": "a", "value": "b", "why": "c"}],
    "card": {
        "name": "t4",
        "vendor": "nvidia",
        "memory_bytes": 15 * _GIB,
        "capability": [7, 5],
        "bf16": False,
        "fp8": False,
    },
    "target": {"gpu": "t4"},
    "log": [{"what": "attempt"}],
}


def _plan(rng):
    from vramwise.training.plan import FORMAT

    data = json.dumps(value_changed(rng, {"format": FORMAT, **_PLAN})).encode()
    return bytes_changed(rng, data) if rng.random() < 0.2 else data


def _read_plan(bench, data):
    from vramwise.training.plan import read_plan

    path = bench.folder / bench.write("out/vramwise.json", data)
    with bench.watched("read_plan"):
        read_plan(path).gpu_spec()


def _resume(bench, data):
    """What `train --resume` learns from the folder of an earlier start."""
    from vramwise.opening.options import Options
    from vramwise.opening.subject import open_subject
    from vramwise.training.parent.remembered import Found, with_found_batches

    bench.write("out/vramwise.json", data)
    config = bench.write("config.yml", BASE.replace("micro_batch_size: 2", "micro_batch_size: 8"))
    with bench.watched("with_found_batches"):
        subject = open_subject(config, Options(gpu="t4"))
        with_found_batches(subject, str(bench.folder / "out"), Found(allocator="", memory_limit_bytes=None))


def _read_journal(bench, data):
    from vramwise.training.parent.supervise import Journal
    from vramwise.training.plan import FORMAT, TrainPlan

    path = bench.folder / bench.write("out/vramwise.json", data)
    with bench.watched("Journal"):
        journal = Journal(path.parent)
        journal.start(TrainPlan.from_json(json.dumps({"format": FORMAT, **_PLAN})))
        journal.note("end", why="x")


add(
    name="records",
    about="the memory log of a training run, damaged or cut short → `report`, its page",
    extension="jsonl",
    make=_records,
    checks={"text": _report("command"), "page": _report("command_html")},
)
add(
    name="plan",
    about="the plan and journal of a training run → what a resumed run reads",
    extension="json",
    make=_plan,
    checks={"plan": _read_plan, "resume": _resume, "journal": _read_journal},
)
