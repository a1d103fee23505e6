"""How fast `diagnose` reads a log, and in how much memory: a generated log of progress bars, figures and chatter.

Prints MB/s and the growth of the peak resident size. `python bench/diagnose.py [megabytes]`, default 200. Then logs
that are made to be slow, of `[megabytes]` of the second argument, default 8: seconds of processor time a gigabyte.
"""

from __future__ import annotations

import io
import resource
import sys
import time

from vramwise.diagnosis.read.log import read_log

_CHATTER = (
    "[2026-01-02 10:00:00,{n:03d}] [INFO] [axolotl.train.step:123] [PID:77] [RANK:0] packed batch {n} of the epoch\n"
    "{{'loss': 1.{n:04d}, 'grad_norm': 0.52, 'learning_rate': 1.9e-05, 'memory/max_allocated (GiB)': 12.31, "
    "'epoch': 0.{n:03d}}}\n"
    "\r {p:3d}%|███████   | {n}/1000000 [00:10<05:00,  1.20s/it]"
    "\x1b[36mDEBUG\x1b[0m shapes ok; file data/part-{n}.parquet read, exit of worker {n} delayed\n"
)
_FAILURE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 22.80 GiB memory in use. Of the "
    "allocated memory 15.00 GiB is allocated by PyTorch, and 7.30 GiB is reserved by PyTorch but unallocated.\n"
)


# Logs made to be slow: every line matches, or a line has no end, or what patterns try again and again.
_CRAFTED = {
    "line ends": "\n",
    "every line an error": "Error\n",
    "every line an exception": "ValueError: sample is empty\n",
    "every line killed": "Killed\n",
    "every line out of memory": _FAILURE,
    "every line a call": '  File "/a/b/trainer.py", line 3, in evaluate\n',
    "every line a call of rich's": "│ /a/b/trainer.py:7 in evaluate │\n",
    "every line a box": "│ \n",
    "lines of boxes": "│ " * 3000 + "\n",
    "every line a setting": "micro_batch_size: 2\n",
    "every line a figure": "{'memory/allocated (GiB)': 1.5}\n",
    "every line an evaluation": "{'eval_loss': 1}\n",
    "every line a mark": "*****\n",
    "bars and carriage returns": "\r 10%|█████     | 10/100 [00:10<05:00,  1.20s/it]",
    "errors and carriage returns": "Error\r",
    "one line of errors": "Error ",
    "one line of letters": "Errorabcdefgh" * 50,
    "one line of blanks": " " * 100,
    "blanks before an error": " " * 8000 + "Error\n",
    "blanks behind an error": "Error" + " " * 7000 + "x\n",
    "colours": "\x1b[31m" * 200 + "Error\n",
    "names before bars": "aaaaaaaa: " * 800 + "1%|it/s\n",
    "brackets before a failure": "[a] " * 100 + "CUDA out of memory. Tried to allocate\n",
    "half a failure": "Failed to clone() tensor with name a " * 30 + "Error\n",
}


class GeneratedLog(io.RawIOBase):
    """A log of a given size, made while it is read."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes
        self._number = 0
        self._rest = b""
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """The next piece."""
        while len(self._rest) < size and not self._ended:
            self._rest += self._more()
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def _more(self) -> bytes:
        if self._left <= 0:
            self._ended = True
            return _FAILURE.encode()
        lines = []
        for _ in range(2000):
            self._number += 1
            lines.append(_CHATTER.format(n=self._number, p=self._number // 10_000))
        data = "".join(lines).encode()
        self._left -= len(data)
        return data


def main() -> int:
    """Generate once to know the generator's own time, then read."""
    size_bytes = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 200_000_000
    start = time.process_time()
    generator = GeneratedLog(size_bytes)
    while generator.read(1 << 20):
        pass
    generating = time.process_time() - start
    read_log(io.BytesIO(_FAILURE.encode()), "warm")  # type: ignore[arg-type]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    facts = read_log(GeneratedLog(size_bytes), "generated")  # type: ignore[arg-type]
    seconds = time.process_time() - start - generating
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    megabytes = facts.size_bytes / 1e6
    print(f"{megabytes:.0f} MB, {facts.lines:,} lines in {seconds:.1f} s: {megabytes / seconds:.0f} MB/s")
    print(f"peak resident size grew by {grown / 1024:.1f} MiB")
    print(f"found: {[symptom.kind for symptom in facts.symptoms]} at line {facts.symptoms[0].quote.line:,}")
    _crafted(int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 8_000_000)
    return 0 if [symptom.kind for symptom in facts.symptoms] == ["cuda-oom"] else 1


def _crafted(size_bytes: int) -> None:
    for name, piece in _CRAFTED.items():
        data = piece.encode() * (size_bytes // len(piece.encode()) + 1)
        start = time.process_time()
        read_log(io.BytesIO(data), name)
        print(f"{name:30} {(time.process_time() - start) / len(data) * 1e9:7.0f} s a GB")


if __name__ == "__main__":
    sys.exit(main())
