"""The `vramwise` command with tools that misbehave: run as a script, with the words of the command.

`list_gpus` computes without end, after it wrote its process id to the file that ENDLESS_PID names. `list_models`
allocates without end. `explain_rule` has a bug.
"""

import os
import sys
import time
from pathlib import Path


def list_gpus(words):
    named = Path(os.environ["ENDLESS_PID"])
    written = named.with_suffix(".new")
    written.write_text(str(os.getpid()))
    written.replace(named)
    while True:
        sum(range(10_000))
        time.sleep(0.01)  # on a busy machine the tests wait for long, and others want the processor


def list_models(words):
    held = []
    while True:
        held.append(bytes(1 << 28))


def explain_rule(rule):
    raise ZeroDivisionError("\x1b[31m" + rule)


def main():
    from vramwise.mcp import tools, worker, worker_process

    if sys.argv[1:] == ["worker"]:
        for tool in (list_gpus, list_models, explain_rule):
            setattr(tools, tool.__name__, tool)
        worker.main()
    else:
        from vramwise.cli.main import main as command

        worker_process.COMMAND = (sys.executable, __file__, "worker")
        command()


if __name__ == "__main__":
    main()
