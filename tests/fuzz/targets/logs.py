"""Logs → `diagnose`: damaged real ones and made-up lines."""

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, lines_changed, odd_number_text
from tests.fuzz.seeds import logs
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, predictable_text, write_model

_UNITS = ("GiB", "MiB", "KiB", "bytes", "GB", "", "²iB")
_FAILED = (
    "  0%|          | 1/20 [00:00<?, ?it/s]\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
    "a total capacity of 23.64 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.40 GiB memory "
    "in use. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 0.90 GiB is reserved by PyTorch but unallocated.\n"
)
_LINES = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {0}. GPU {1} has a total capacity of {2} of which {3} is "
    "free. Including non-PyTorch memory, this process has {4} memory in use. Of the allocated memory {5} is allocated by "
    "PyTorch, and {6} is reserved by PyTorch but unallocated.",
    "RuntimeError: CUDA out of memory. Tried to allocate {0} (GPU {1}; {2} total capacity; {3} already allocated; {4} free; "
    "{5} reserved in total by PyTorch)",
    "  0%|          | {1}/{2} [00:00<?, ?it/s]",
    "{{'loss': {1}, 'grad_norm': {2}, 'learning_rate': 2e-05, 'epoch': {3}, 'memory/max_allocated (GiB)': {4}}}",
    '  File "{7}", line {1}, in {7}',
    "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: {7} != {7}",
    "Process finished with signal {1}; exit code: -{1}; Killed; rank: {2}, local_rank: {3}",
    "micro_batch_size: {1}",
    "[rank{1}]: Traceback (most recent call last):",
    "\x1b[32m2024-01-01 10:00:00,000\x1b[0m | INFO | {7}",
    "│ {7} │" + " " * 200,
    "{7}",
)


def _figure(rng):
    number = odd_number_text(rng) if rng.random() < 0.4 else f"{rng.uniform(0, 100):.2f}"
    return f"{number} {rng.choice(_UNITS)}"


def _line(rng, line=""):
    if line and rng.random() < 0.3:
        return line + rng.choice(HOSTILE_TEXT)
    words = [_figure(rng), odd_number_text(rng), *(_figure(rng) for _ in range(5)), rng.choice(HOSTILE_TEXT)]
    if rng.random() < 0.5:
        words[1] = str(rng.randint(0, 9))
    return rng.choice(_LINES).format(*words)


def log(rng):
    """A log: a damaged real one, or made-up lines."""
    kind = rng.random()
    if kind < 0.4:
        text = lines_changed(rng, rng.choice(logs()), rng.choice(logs()), _line)
        return text.encode("utf-8", "replace")
    if kind < 0.8:
        line_end = rng.choice(("\n", "\n", "\r\n", "\r"))
        return line_end.join(_line(rng) for _ in range(rng.choice((1, 5, 40)))).encode("utf-8", "replace")
    return bytes_changed(rng, rng.choice(logs()).encode(), rng.choice(logs()).encode())


def _diagnose(*words, how="command", config=False):
    def run(bench, data):
        name = bench.write("run.log", data)
        more = ()
        if config:
            write_model(bench)
            more = ("--config", bench.write("config.yml", BASE))
        getattr(bench, how)("diagnose", name, *words, *more)

    return run


def _from_stdin(bench, data):
    bench.command("diagnose", "-", stdin=data)


def _failed(*words, how="command"):
    """The log of a failed run beside any config."""

    def run(bench, data):
        write_model(bench)
        log = bench.write("run.log", _FAILED)
        getattr(bench, how)("diagnose", log, "--config", bench.write("config.yml", data), *words)

    return run


add(
    name="log",
    about="logs of any kind → `diagnose`: text, JSON, with a config, from standard input",
    extension="log",
    make=log,
    checks={
        "text": _diagnose(),
        "json": _diagnose("--format", "json", how="command_json"),
        "config": _diagnose("--gpu", "24GB", config=True),
        "stdin": _from_stdin,
    },
)
add(
    name="failed-run",
    about="config text beside the log of an out-of-memory → `diagnose --config`",
    extension="yml",
    make=predictable_text,
    checks={"text": _failed("--gpu", "24GB"), "json": _failed("--gpu", "t4", "--format", "json", how="command_json")},
)
