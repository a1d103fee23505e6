"""The training worker with a GPU that is too small: `python faulty_worker.py PLAN.json`, or many runs by `--serve`.

FAULTS (JSON in the environment): micro (a larger micro-batch fails) from step, eval (a larger eval batch fails); rank
(on that rank alone), kill (the rank that is killed) at step, once.
A file `hold` in the output_dir holds the run inside its next step until it is removed.
`--serve` imports torch once and forks a process for every plan named on standard input: ten runs in the time of two.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(path):
    import torch

    from vramwise.training.worker import main as worker
    from vramwise.training.worker.same_result import SameResultTrainer

    torch.set_num_threads(1)
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    training_step, prediction_step = SameResultTrainer.training_step, SameResultTrainer.prediction_step

    def out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …")

    def here(kind):
        return faults.get(kind, int(os.environ.get("RANK", "0"))) == int(os.environ.get("RANK", "0"))

    def killed_once(self):
        done = Path(self.args.output_dir, "killed")
        if "kill" in faults and here("kill") and self.state.global_step + 1 == faults["at"] and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self, model, inputs, *more, **others):
        killed_once(self)
        while Path(self.args.output_dir, "hold").exists():
            time.sleep(0.01)
        due = self.state.global_step + 1 >= faults.get("from", 1) and here("rank")
        if due and len(inputs["input_ids"]) > faults.get("micro", 10**9):
            out_of_memory()
        return training_step(self, model, inputs, *more, **others)

    def predict(self, model, inputs, *more, **others):
        if len(inputs["input_ids"]) > faults.get("eval", 10**9):
            out_of_memory()
        return prediction_step(self, model, inputs, *more, **others)

    SameResultTrainer.training_step, SameResultTrainer.prediction_step = train, predict
    return worker.main([path])


def serve():
    import vramwise.training.worker.engine_transformers  # noqa: F401  # what takes long to import

    sys.stdout.write("ready 0\n")
    sys.stdout.flush()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = 1
            try:
                code = main(line.strip())
            finally:
                os._exit(code)
        sys.stdout.write(f"pid {pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"code {os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1] == "--serve" else main(sys.argv[1]))
