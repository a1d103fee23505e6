"""Stands in for the training worker: the same plan, checkpoints, records and exit codes, without torch.

The "model" is a number that every sample changes, in order; a lost, repeated or reordered sample gives another number.
STUB (JSON in the environment): steps, save_every, oom_at, fits (largest micro-batch), eval_at, eval_fits, pause,
stop_code.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from vramwise.training import checkpoints
from vramwise.training.guard import oom
from vramwise.training.parent.child import announce
from vramwise.training.plan import EXIT_OUT_OF_MEMORY, EXIT_TERMINATED, read_plan


class OutOfMemoryError(RuntimeError):
    pass


def learn(weight, sample):
    return (weight * 1_000_003 + sample + 1) % (2**61 - 1)


def save(plan, step, weight, pause):
    folder = checkpoints.begin(plan.output_dir, step)
    (folder / "step.json").write_text(json.dumps(step))
    time.sleep(pause)
    (folder / "weight.json").write_text(json.dumps(weight))
    time.sleep(pause)
    checkpoints.finish(plan.output_dir, step, run=plan.run)
    checkpoints.rotate(plan.output_dir, keep=1, run=plan.run)


def main():
    plan = read_plan(sys.argv[1])
    script = json.loads(os.environ["STUB"])
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    announce(plan.output_dir)
    (Path(plan.output_dir) / "ready").touch()
    step, weight = 0, 1
    if plan.resume_from is not None:
        folder = Path(plan.resume_from)
        step, weight = (json.loads((folder / name).read_text()) for name in ("step.json", "weight.json"))
    pause = script.get("pause", 0)
    try:
        while step < script["steps"]:
            for micro in range(plan.gradient_accumulation_steps):
                if step + 1 >= script.get("oom_at", 10**9) and plan.micro_batch_size > script["fits"]:
                    plan_phase = "train"
                    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB.")
                for row in range(plan.micro_batch_size):
                    weight = learn(weight, step * plan.effective_batch_size + micro * plan.micro_batch_size + row)
            step += 1
            time.sleep(pause)
            if step == script.get("eval_at") and plan.eval_batch_size > script["eval_fits"]:
                plan_phase = "eval"
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate 512.00 MiB.")
            if step % script.get("save_every", 10**9) == 0 or stop:
                save(plan, step, weight, pause)
            if stop:
                sys.exit(script.get("stop_code", EXIT_TERMINATED))
    except OutOfMemoryError as error:
        oom.record(plan, error, plan_phase, step=step + 1)
        sys.exit(script.get("oom_code", EXIT_OUT_OF_MEMORY))
    (Path(plan.output_dir) / "result.json").write_text(json.dumps(weight))


main()
