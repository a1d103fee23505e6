"""A second input of each kind of the first table of bounds, made after the readers were done: for bench/bounds.py."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

from hostile_inputs import CARD, MIB, QAT, TRL, VISION, Command, Make, config_naming, data_file, plain, written

_GRPO = """from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(output_dir="out", per_device_train_batch_size=8, num_generations=8, max_completion_length=64)
trainer = GRPOTrainer("Qwen/Qwen2-0.5B-Instruct", args=args, train_dataset=rows, peft_config=LoraConfig(r=8))
trainer.train()
"""
_FRAME = {"filename": "train.py", "line": 1, "name": "step"}


def _dictionary_of_bytes(folder: Path) -> Command:
    """Binary values of 32 MiB in a dictionary, each of which eight rows name."""
    import pyarrow as pa
    from pyarrow import parquet

    values = [b"%03d" % number + b"y" * (32 * MIB - 3) for number in range(24)]
    parquet.write_table(
        pa.table({"messages": pa.array(values * 8, pa.large_binary())}),
        folder / "d.parquet",
        compression="zstd",
        row_group_size=1000,
    )
    return ["check", config_naming(folder, folder / "d.parquet"), *CARD]


def _null_structs(folder: Path) -> Command:
    """100 million rows without a value."""
    import pyarrow as pa
    from pyarrow import parquet

    kind = pa.struct([("role", pa.string()), ("content", pa.string())])
    parquet.write_table(pa.table({"messages": pa.nulls(100_000_000, kind)}), folder / "d.parquet", compression="zstd")
    return ["check", config_naming(folder, folder / "d.parquet"), *CARD]


def _quoted_columns() -> Iterator[bytes]:
    yield b'"text",' * 400_000 + b'"text"\n'
    yield b'"a"\n' * 300_000


def _short_bytes() -> bytes:
    """40 million short values, each made anew."""
    return gzip.compress(b"\x80\x04](" + b"C\x01a" * 40_000_000 + b"e.", 1)


def _shared_frames() -> bytes:
    event = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": [_FRAME] * 200}
    return pickle.dumps({"segments": [], "device_traces": [[event] * 2_000_000], "allocator_settings": {}})


def _nested_list(folder: Path) -> Command:
    """A file for accelerate that nests 100,000 lists."""
    (folder / "launch.yaml").write_text("- " * 100_000)
    (folder / "config.yaml").write_text(TRL)
    return ["fit", str(folder / "config.yaml"), "--gpu", "24GB"]


def _longest_of_many_steps(folder: Path) -> Command:
    return ["fit", config_naming(folder, "some/data", steps=999_999), *CARD, "--max", "sequence_len"]


def _notebook(folder: Path, shown: str) -> str:
    """A GRPO run in a notebook, after a cell with large outputs."""
    code = {"cell_type": "code", "metadata": {}, "execution_count": None}
    picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": shown}}
    cells = [{**code, "source": "import torch", "outputs": [picture]}, {**code, "source": _GRPO, "outputs": []}]
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return str(path)


def _large_picture(folder: Path) -> Command:
    return ["fit", _notebook(folder, "iVBORw0K" * 240_000), *CARD, "--allow", "qlora"]


def _escaped_output(folder: Path) -> Command:
    return ["fit", _notebook(folder, "\n" * 950_000), *CARD, "--allow", "qlora"]


AGAIN: dict[str, Make] = {
    "again: parquet, dictionary of 24 × 32 MiB": _dictionary_of_bytes,
    "again: parquet, 100 million null structs": _null_structs,
    "again: CSV, 400,000 columns of one name": data_file("d.csv", _quoted_columns),
    "again: 63 MB of CR LF": data_file("d.jsonl", lambda: iter([b"\r\n" * 31_500_000])),
    "again: 21 million empty rows": data_file("d.jsonl", lambda: iter([b"{}\n" * 21_000_000])),
    "again: a row of 15 million pairs": data_file(
        "d.jsonl", lambda: iter([b'{"messages": [', b"[1]," * 15_000_000, b"1]}\n"])
    ),
    "again: pickle, 40 million short values, replay": written("replay", "a.pickle", _short_bytes),
    "again: one event 2 million times, diagnose": written(
        "diagnose", "a.pickle", _shared_frames, "--snapshot", "FILE", "--html", "page.html"
    ),
    "again: 999,999 micro-batches, fit --max": _longest_of_many_steps,
    "again: accelerate_config of 100,000 lists, fit": _nested_list,
    "again: 24B vision model, fit --gpu 12GB": plain(VISION, "fit", "FILE", "--gpu", "12GB"),
    "again: 24B vision model, predict --gpu t4": plain(VISION, "predict", "FILE", "--gpu", "t4"),
    "again: 12B QAT, fit --gpu t4": plain(QAT, "fit", "FILE", "--gpu", "t4"),
    "again: 12B QAT, check --gpu t4": plain(QAT, "check", "FILE", "--gpu", "t4"),
    "again: notebook with a picture of 1.9 MB, fit": _large_picture,
    "again: notebook with 950,000 escapes, fit": _escaped_output,
    "again: a row of 20 million empty texts": data_file(
        "d.jsonl", lambda: iter([b'{"messages": [', b'"",' * 20_000_000, b'""]}\n'])
    ),
}
