"""Hostile and large inputs for bench/bounds.py: each function writes files into a folder and returns a command line.

ISSUE repeats the measurements that the bounds were asked for with. NEW was written after the readers were done; what
it found was fixed by mechanism, and it stays as a check.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

MIB = 1024**2
SHARED = Path(__file__).resolve().parents[2] / "shared" / "hostile"
CARD = ("--gpu", "rtx-4090")
Command = list[str]
Make = Callable[[Path], Command]

CONFIG = """\
base_model: {model}
adapter: qlora
load_in_4bit: true
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: {accumulation}
num_epochs: 1
optimizer: adamw_torch
learning_rate: 0.0002
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: {data}
    ds_type: {kind}
    type: chat_template
output_dir: ./out
"""
VISION = """\
base_model: mistralai/Mistral-Small-3.1-24B-Instruct-2503
processor_type: AutoProcessor
load_in_8bit: true
skip_prepare_dataset: true
remove_unused_columns: false
sample_packing: false
datasets: [{path: some/pictures, type: chat_template}]
val_set_size: 0.01
output_dir: ./out
adapter: lora
sequence_len: 2048
pad_to_sequence_len: false
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules: 'model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj'
gradient_accumulation_steps: 1
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: true
tf32: true
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""
QAT = """\
base_model: google/gemma-3-12b-it
plugins: [axolotl.integrations.liger.LigerPlugin]
liger_rope: true
liger_rms_norm: true
liger_glu_activation: true
liger_fused_linear_cross_entropy: true
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
output_dir: ./out
sequence_len: 8096
sample_packing: true
attn_implementation: flash_attention_2
qat: {activation_dtype: nvfp4, weight_dtype: nvfp4, group_size: 16}
gradient_accumulation_steps: 1
micro_batch_size: 16
num_epochs: 1
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 4e-5
bf16: true
tf32: true
fsdp_version: 2
fsdp_config:
  offload_params: false
  cpu_ram_efficient_loading: true
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: Gemma3DecoderLayer
  state_dict_type: FULL_STATE_DICT
  sharding_strategy: FULL_SHARD
  reshard_after_forward: true
  activation_checkpointing: true
"""
TRL = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
max_length: 2048
per_device_train_batch_size: 4
gradient_accumulation_steps: 8
learning_rate: 2.0e-4
output_dir: out
use_peft: true
lora_r: 16
accelerate_config: launch.yaml
"""
MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
}


def config_naming(
    folder: Path, data: str | Path, *, model: str | Path = "NousResearch/Meta-Llama-3-8B", steps: int = 4
) -> str:
    """The path of a config that names this data."""
    kind = {".parquet": "parquet", ".csv": "csv"}.get(Path(data).suffix, "json")
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(model=model, data=data, kind=kind, accumulation=steps))
    return str(path)


def data_file(name: str, pieces: Callable[[], Iterator[bytes]], verb: str = "check") -> Make:
    """A config that names this data."""

    def make(folder: Path) -> Command:
        with (folder / name).open("wb") as file:
            file.writelines(pieces())
        return [verb, config_naming(folder, folder / name), *CARD]

    return make


def written(verb: str, name: str, content: Callable[[], bytes], *options: str) -> Make:
    """A command on one file."""

    def make(folder: Path) -> Command:
        (folder / name).write_bytes(content())
        return [verb, *(str(folder / name) if word == "FILE" else word for word in (options or ("FILE",)))]

    return make


def shared(name: str, *command: str) -> Make | None:
    """A file of the shared folder, where it is there; unpacked where its name ends in .gz."""
    if not (SHARED / name).is_file():
        return None

    def make(folder: Path) -> Command:
        data = (SHARED / name).read_bytes()
        path = folder / name.removesuffix(".gz")
        path.write_bytes(gzip.decompress(data) if name.endswith(".gz") else data)
        if command[0] == "check":
            return ["check", config_naming(folder, path), *CARD]
        return [
            str(path) if word == "FILE" else str(folder / word) if word.endswith(".html") else word for word in command
        ]

    return make


def nulls(folder: Path) -> Command:
    """A list of 500 million nulls in one row: some hundred bytes of run-length encoding."""
    import pyarrow as pa
    from pyarrow import parquet

    count = 500_000_000
    column = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.null()))
    parquet.write_table(pa.table({"messages": column}), folder / "nulls.parquet", compression="zstd")
    return ["check", config_naming(folder, folder / "nulls.parquet"), *CARD]


def wide_csv() -> Iterator[bytes]:
    """A header of 300,000 columns over rows of two cells."""
    yield ",".join(f"c{number}" for number in range(300_000)).encode() + b"\n"
    yield b"a,b\n" * 200_000


def launch_file(folder: Path) -> Command:
    """A file for accelerate that nests 100,000 deep."""
    (folder / "launch.yaml").write_text("{" * 100_000)
    (folder / "config.yaml").write_text(TRL)
    return ["fit", str(folder / "config.yaml"), "--gpu", "24GB"]


def accumulation(verb: str) -> Make:
    """A million micro-batches a step."""
    return lambda folder: [verb, config_naming(folder, "some/data", steps=1_000_000), *CARD]


def plain(text: str, *command: str) -> Make:
    """A command on an ordinary config."""

    def make(folder: Path) -> Command:
        (folder / "config.yaml").write_text(text)
        return [str(folder / "config.yaml") if word == "FILE" else word for word in command]

    return make


ISSUE: dict[str, Make | None] = {
    "bomb2.parquet, check": shared("bomb2.parquet", "check"),
    "parquet of nulls, check": nulls,
    "CSV of 300,000 columns, check": data_file("wide.csv", wide_csv),
    "63 MB of blank lines, check": data_file("blank.jsonl", lambda: iter([b"\n" * 63_000_000])),
    "a row of 32 million numbers, check": data_file(
        "numbers.jsonl", lambda: iter([b'{"messages": [', b"1," * 31_900_000, b"1]}\n"])
    ),
    "bomb5.pickle, replay": shared("bomb5.pickle", "replay", "FILE"),
    "sharedev.pickle, diagnose --html": shared(
        "sharedev.pickle.gz", "diagnose", "--snapshot", "FILE", "--html", "page.html"
    ),
    "gradient_accumulation_steps: 1000000, fit": accumulation("fit"),
    "gradient_accumulation_steps: 1000000, predict": accumulation("predict"),
    "accelerate_config of 100,000 {, fit": launch_file,
    "24B vision model, fit --gpu 8GB": plain(VISION, "fit", "FILE", "--gpu", "8GB"),
    "12B QAT, fix --gpu t4": plain(QAT, "fix", "FILE", "--gpu", "t4", "--diff"),
}


def _model(folder: Path, config: bytes, tokenizer: bytes | None = None) -> Command:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_bytes(config)
    if tokenizer is not None:
        (folder / "model" / "tokenizer.json").write_bytes(tokenizer)
    (folder / "d.jsonl").write_text(json.dumps({"text": "word " * 400}) + "\n")
    return ["predict", config_naming(folder, folder / "d.jsonl", model=folder / "model"), *CARD]


def model_config(extra: Callable[[], bytes]) -> Make:
    """A model whose config.json has more fields than it should."""
    return lambda folder: _model(folder, json.dumps(MODEL).encode()[:-1] + b"," + extra() + b"}")


def slow_files(folder: Path) -> Command:
    """Twelve Parquet files, for training and evaluation, and a tokenizer that never ends."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [{"messages": [{"role": "user", "content": "word " * 3}] * 400}] * 400
    for number in range(12):
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")
    config = Path(_model(folder, json.dumps(MODEL).encode(), _slow_pattern())[1])
    blocks = "".join(f"  - {{path: {folder}/{number}.parquet, type: chat_template}}\n" for number in range(6))
    others = "".join(f"  - {{path: {folder}/{number}.parquet, type: chat_template}}\n" for number in range(6, 12))
    head = config.read_text().split("datasets:")[0]
    config.write_text(f"{head}datasets:\n{blocks}test_datasets:\n{others}output_dir: ./out\n")
    return ["check", str(config), *CARD]


def tokenizer_of(text: Callable[[], bytes]) -> Make:
    """A model with this tokenizer.json, and data to count."""
    return lambda folder: _model(folder, json.dumps(MODEL).encode(), text())


def _vocabulary() -> bytes:
    words = b",".join(b'"w%d":%d' % (number, number) for number in range(3_500_000))
    return b'{"version":"1.0","model":{"type":"WordLevel","unk_token":"w0","vocab":{' + words + b"}}}"


def _slow_pattern() -> bytes:
    splitting = {
        "type": "Split",
        "pattern": {"Regex": "(?:(?:w|o|r|d| )+)+(?:(?:w|o|r|d| )+)+!"},
        "behavior": "Isolated",
        "invert": False,
    }
    model = {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}
    return json.dumps({"version": "1.0", "pre_tokenizer": splitting, "model": model}).encode()


def _parquet(name: str, table: Callable[[], object], **options: object) -> Make:
    def make(folder: Path) -> Command:
        from pyarrow import parquet

        parquet.write_table(table(), folder / name, **options)
        return ["check", config_naming(folder, folder / name), *CARD]

    return make


def _same_text() -> object:
    import pyarrow as pa

    return pa.table({"text": pa.array(["x" * (8 * MIB)] * 200)})


def _nested() -> object:
    import pyarrow as pa

    kind = pa.string()
    for _ in range(40):
        kind = pa.list_(kind)
    value: object = "text"
    for _ in range(40):
        value = [value]
    return pa.table({"messages": pa.array([value] * 1000, kind)})


def _many_columns() -> object:
    import pyarrow as pa

    return pa.table({f"c{number}": ["a"] for number in range(20_000)})


def _long_rows() -> object:
    import pyarrow as pa

    return pa.table({"text": pa.array(["ab" * 500_000 + str(number) for number in range(60)])})


def _memo_gets() -> bytes:
    return b"\x80\x04]\x94(" + b"h\x00" * 31_000_000 + b"e."


def _nested_pickle() -> bytes:
    return b"\x80\x04" + b"]" * 30_000_000 + b"a" * 29_999_999 + b"."


def _long_texts() -> bytes:
    text = b"X" + struct.pack("<I", 1000) + "\U0001f600".encode() * 250
    return b"\x80\x04](" + text * 60_000 + b"e."


def _stacks() -> bytes:
    """An out-of-memory after 80,000 allocations, each with a stack of its own."""
    import pickle

    base = 0x7F0000000000
    trace: list[dict[str, object]] = [
        {
            "action": "alloc",
            "addr": base + number * 2 * MIB,
            "size": MIB + number,
            "stream": number % 7,
            "frames": [{"filename": f"f{number}.py", "line": number, "name": f"n{level}"} for level in range(4)],
        }
        for number in range(80_000)
    ]
    trace.append({"action": "oom", "size": 1 << 34, "stream": 0, "device_free": 0, "frames": []})
    return pickle.dumps({"segments": [], "device_traces": [trace], "allocator_settings": {}}, protocol=4)


def _trace(row: str, count: int) -> bytes:
    return ('{"events": [' + ",".join(row % {"n": number} for number in range(1, count + 1)) + "]}").encode()


def _lock() -> bytes:
    head, package = b"version = 1\n", b'[[package]]\nname = "p%d"\nversion = "1.0"\n\n'
    return head + b"".join(package % number for number in range(350_000))


def _stack_file(content: Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Command:
        (folder / "lock.txt").write_bytes(content())
        return ["check", config_naming(folder, "some/data"), *CARD, "--stack", str(folder / "lock.txt")]

    return make


def _project(content: Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Command:
        (folder / "pyproject.toml").write_bytes(content())
        return ["check", config_naming(folder, "some/data")]

    return make


def _lengths(content: Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Command:
        (folder / "lengths").write_bytes(content())
        return ["predict", config_naming(folder, "some/data"), *CARD, "--lengths", str(folder / "lengths")]

    return make


def _side(content: Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Command:
        (folder / "ds.json").write_bytes(content())
        config = Path(config_naming(folder, "some/data"))
        config.write_text(config.read_text() + f"deepspeed: {folder / 'ds.json'}\n")
        return ["fit", str(config), *CARD, "--gpus", "2"]

    return make


def _run_folder(line: bytes, count: int) -> Make:
    def make(folder: Path) -> Command:
        start = b'{"kind": "start", "attempt": 1}\n'
        (folder / "memory.jsonl").write_bytes(start + line * count)
        return ["report", str(folder)]

    return make


_SAMPLE = (
    b'{"kind":"sample","attempt":1,"step":1,"phase":"train","width":8,"allocated_bytes":1,"reserved_bytes":2,'
    b'"peak_allocated_bytes":1,"peak_reserved_bytes":2,"retries":0,"device_free_bytes":9}\n'
)
_OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB "
)

NEW: dict[str, Make | None] = {
    "YAML: flow lists 400,000 deep": written("check", "a.yaml", lambda: b"a: " + b"[" * 400_000),
    "YAML: 90,000 keys": written("check", "a.yaml", lambda: b"".join(b"k%d: 1\n" % n for n in range(90_000))),
    "YAML: a key of 1 MB": written("check", "a.yaml", lambda: b"k" * 1_000_000 + b": 1\n"),
    "YAML: 50,000 anchors": written(
        "check", "a.yaml", lambda: b"".join(b"a%d: &a%d 1\n" % (n, n) for n in range(50_000))
    ),
    "YAML: aliases of aliases": written(
        "check",
        "a.yaml",
        lambda: (
            b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60))
        ),
    ),
    "YAML: merges of 9,000 keys": written(
        "fix",
        "a.yaml",
        lambda: b"base: &b {" + b",".join(b"k%d: 1" % n for n in range(4500)) + b"}\n<<: *b\nadapter: lora\n",
    ),
    "YAML: 64 MiB": written("check", "a.yaml", lambda: b"a: 1\n" * 13_000_000),
    "YAML: tabs and quotes, slow scanner": written(
        "check", "a.yaml", lambda: b"a: '\xc3\xa9\t" + b"x''" * 330_000 + b"'\n"
    ),
    "JSON config: 1 MB of brackets": written("check", "a.json", lambda: b'{"a": ' + b"[" * 1_000_000),
    "JSON config: 90,000 keys in one value": written(
        "check", "a.json", lambda: b'{"a": {' + b",".join(b'"%d":0' % n for n in range(90_000)) + b"}}"
    ),
    "DeepSpeed JSON, 160,000 deep, fit": _side(lambda: b'{"a":' * 160_000 + b"1" + b"}" * 160_000),
    "DeepSpeed JSON, wide, fit": _side(lambda: b'{"a": [' + b"{}," * 300_000 + b"{}]}"),
    "DeepSpeed JSON, 60 MB, fit": _side(lambda: b'{"a": "' + b"x" * 60_000_000 + b'"}'),
    "TOML: arrays 100,000 deep": _project(lambda: b"[tool.vramwise]\nselect = " + b"[" * 100_000),
    "TOML: 990,000 bytes of keys": _project(
        lambda: b"[tool.vramwise]\n" + b"".join(b"k%d = 1\n" % n for n in range(85_000))
    ),
    "TOML: 900,000 bytes of dotted tables": _project(
        lambda: b"[tool.vramwise]\n" + b"".join(b"[a.b.c.d.e.f.g%d]\n" % n for n in range(42_000))
    ),
    "TOML: one string of 900,000 escapes": _project(lambda: b'[tool.vramwise]\ngpu = "' + b"\\n" * 450_000 + b'"\n'),
    "TOML: 60 MB": _project(lambda: b"[tool.vramwise]\n" + b"# comment\n" * 6_000_000),
    "JSONL: one string of 60 MB": data_file("d.jsonl", lambda: iter([b'{"text": "', b"x" * 60_000_000, b'"}\n'])),
    "JSONL: one string of 60 MB of escapes": data_file(
        "d.jsonl", lambda: iter([b'{"text": "\\ud83d\\ude00', b"\\u00e9" * 10_000_000, b'"}\n'])
    ),
    "JSONL: 1.8 million turns in one row": data_file(
        "d.jsonl", lambda: iter([b'{"messages": [', b'{"role":"assistant","content":"a"},' * 1_800_000, b"{}]}\n"])
    ),
    "JSONL: 20 million empty lists": data_file(
        "d.jsonl", lambda: iter([b'{"messages": [', b"[]," * 20_000_000, b"1]}"])
    ),
    "JSONL: rows of 1,000 columns": data_file(
        "d.jsonl",
        lambda: iter([b"{" + b",".join(b'"c%d":"a"' % n for n in range(1000)) + b"}\n"] * 5_000),
    ),
    "JSONL: 200,000 rows of pairs": data_file(
        "d.jsonl", lambda: iter([b'{"prompt":"p","chosen":[{"content":"a"}],"rejected":[{"content":"b"}]}\n'] * 250_000)
    ),
    "JSONL: nested 900 deep, 15 million texts": data_file(
        "d.jsonl", lambda: iter([b'{"text":' + b"[" * 900, b'"a",' * 15_000_000, b'"a"' + b"]" * 900 + b"}\n"])
    ),
    "JSONL: tabs on blank lines": data_file("d.jsonl", lambda: iter([b" \t\n" * 21_000_000])),
    "JSON: one list of 10 million numbers": data_file("d.json", lambda: iter([b"[", b"12345," * 10_000_000, b"1]"])),
    "JSON: 64 MiB of open braces": data_file("d.json", lambda: iter([b"[", b"{" * 60_000_000])),
    "CSV: one quoted field of 60 MB": data_file("d.csv", lambda: iter([b'text\n"', b"x" * 60_000_000, b'"\n'])),
    "CSV: a quoted field of 30 million lines": data_file(
        "d.csv", lambda: iter([b'text\n"', b"x\n" * 30_000_000, b'"\n'])
    ),
    "CSV: rows of 100,000 cells": data_file("d.csv", lambda: iter([b"text\n", (b"a," * 100_000 + b"\n") * 300])),
    "CSV: carriage returns": data_file("d.csv", lambda: iter([b"text\r", b"a\r" * 31_000_000])),
    "parquet: 200 texts of 8 MiB, one page": _parquet("d.parquet", _same_text, compression="zstd"),
    "parquet: plain pages of 1.6 GB": _parquet("d.parquet", _same_text, compression="zstd", use_dictionary=False),
    "parquet: lists 40 deep": _parquet("d.parquet", _nested),
    "parquet: 20,000 columns": _parquet("d.parquet", _many_columns),
    "parquet: long rows": _parquet("d.parquet", _long_rows),
    "gzip of 400 MB, replay": written("replay", "a.gz", lambda: gzip.compress(b"\0" * 400_000_000, 1)),
    "gzip of JSON blanks, replay": written("replay", "a.gz", lambda: gzip.compress(b" " * 250_000_000 + b"{}", 1)),
    "pickle: 30 million lists deep, replay": written("replay", "a.pickle", _nested_pickle),
    "pickle: 31 million memo gets, replay": written("replay", "a.pickle", _memo_gets),
    "pickle: wide texts, diagnose": written("diagnose", "a.pickle", _long_texts, "--snapshot", "FILE"),
    "pickle: 80,000 stacks, diagnose": written("diagnose", "a.pickle", _stacks, "--snapshot", "FILE"),
    "trace: 1.2 million allocations, replay": written(
        "replay", "a.json", lambda: _trace('["alloc",%(n)d0000,5000,0]', 1_200_000)
    ),
    "trace: 1 million segment_map, diagnose": written(
        "diagnose", "a.json", lambda: _trace('["segment_map",%(n)d00000,2097152,0]', 1_000_000), "--snapshot", "FILE"
    ),
    "trace: 64 MiB of empty lists, replay": written("replay", "a.json", lambda: _trace("[]", 20_000_000)),
    "log: one line of 64 MiB": written("diagnose", "a.log", lambda: b"CUDA out of memory " * 3_500_000),
    "log: 32 million lines": written("diagnose", "a.log", lambda: b"x\n" * 32_000_000),
    "log: 500,000 failures": written("diagnose", "a.log", lambda: (_OOM + b"\n") * 500_000),
    "log: 64 MiB of tracebacks": written(
        "diagnose", "a.log", lambda: (b'  File "/a/b.py", line 3, in f\n    x()\n' * 20 + _OOM + b"\n") * 70_000
    ),
    "log: 64 MiB of escapes": written("diagnose", "a.log", lambda: b"\x1b[31mloss\x1b[0m out of memory\n" * 2_000_000),
    "log: UTF-16": written("diagnose", "a.log", lambda: ("CUDA out of memory\n" * 1_600_000).encode("utf-16")),
    "config.json: lists 500,000 deep": model_config(lambda: b'"a": ' + b"[" * 500_000 + b"]" * 500_000),
    "config.json: a number of 1 million digits": model_config(lambda: b'"rope_theta": ' + b"9" * 1_000_000),
    "config.json: layer_types of 200,000": model_config(
        lambda: b'"layer_types": [' + b'"full_attention",' * 200_000 + b'"x"]'
    ),
    "config.json: 10 million layers": model_config(lambda: b'"num_hidden_layers": 10000000'),
    "config.json: 60 MB": model_config(lambda: b'"a": "' + b"x" * 60_000_000 + b'"'),
    "tokenizer.json: 3.5 million words": tokenizer_of(_vocabulary),
    "tokenizer.json: 60 MB of brackets": tokenizer_of(lambda: b"[" * 60_000_000),
    "12 Parquet files and a slow tokenizer": slow_files,
    "tokenizer.json: a slow pattern": tokenizer_of(_slow_pattern),
    "lengths: 60 MB of numbers": _lengths(lambda: b"1000\n" * 12_000_000),
    "lengths: 1.9 million numbers": _lengths(lambda: b"1000\n900\n" * 950_000),
    "lengths: 1 million numbers": _lengths(lambda: b"1000\n900\n" * 499_000),
    "lengths: vertical tabs": _lengths(lambda: b"\x0b" * 60_000_000),
    "lengths: one row of 30 million numbers": _lengths(lambda: b'{"input_ids": [' + b"1," * 30_000_000 + b"1]}"),
    "lengths: nested 900 deep": _lengths(
        lambda: b'{"a":' + b"[" * 900 + b'"a",' * 9_000_000 + b'"a"' + b"]" * 900 + b"}"
    ),
    "lengths: 1.9 million rows": _lengths(lambda: b'{"length": 9, "a": [1]}\n' * 1_900_000),
    "lengths: 1 million rows": _lengths(lambda: b'{"length": 9, "a": [1]}\n' * 990_000),
    "uv.lock of 15 MB": _stack_file(_lock),
    "uv.lock of 60 MB": _stack_file(lambda: _lock() * 4),
    "requirements of one line of 15 MB": _stack_file(lambda: b"torch[" + b"a" * 15_000_000),
    "memory log of 60 MB, report": _run_folder(_SAMPLE, 330_000),
    "memory log: one line of 60 MB, report": _run_folder(b"[" * 60_000_000, 1),
    "memory log: warnings, report": _run_folder(b'{"kind":"warning","attempt":1,"step":1,"text":"a"}\n', 500_000),
}
