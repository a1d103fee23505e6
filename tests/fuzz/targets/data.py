"""Data files that a config or `--data` names, and the model's tokenizer: JSON lines, JSON, CSV, Parquet."""

import csv
import io
import json
from itertools import count

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, odd_number_text, odd_value, value_changed
from tests.fuzz.seeds import ROOT
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, TINY_MODEL, write_model

_TURN = {"role": "assistant", "content": "some words to say"}
_ROWS = (
    {"text": "some text of a row"},
    {"instruction": "say", "input": "", "output": "something"},
    {"messages": [{"role": "user", "content": "hi"}, _TURN]},
    {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]},
    {"prompt": "x", "chosen": "a better answer", "rejected": "an answer"},
    {"prompt": [{"role": "user", "content": "x"}], "chosen": [_TURN], "rejected": [_TURN]},
    {"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "completion_mask": [0, 1, 1]},
    {"length": 17},
    {"question": "x", "context": {"a": ["b"]}, "answers": {"text": ["c"]}},
)
_names = count()


def _rows(rng):
    usual = rng.choice(_ROWS)
    rows = [usual if rng.random() < 0.5 else value_changed(rng, usual) for _ in range(rng.choice((1, 2, 5, 40)))]
    return [rng.choice(_ROWS) if rng.random() < 0.1 else row for row in rows]


def _json_rows(rng):
    rows = _rows(rng)
    text = (
        json.dumps(rows) if rng.random() < 0.3 else rng.choice(("\n", "\n", "\r\n", "\n\n")).join(map(json.dumps, rows))
    )
    return bytes_changed(rng, text.encode(), b'{"text": "donor"}\n') if rng.random() < 0.3 else text.encode()


def _csv_rows(rng):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=rng.choice(",,,;\t"), lineterminator=rng.choice(("\n", "\r\n", "\r")))
    names = rng.choice((["text"], ["instruction", "input", "output"], ["prompt", "chosen", "rejected"], ["length"]))
    writer.writerow(names if rng.random() < 0.9 else [rng.choice(HOSTILE_TEXT) for _ in names])
    for _ in range(rng.choice((0, 1, 3, 30))):
        cells = [rng.choice(("some words", odd_number_text(rng), rng.choice(HOSTILE_TEXT))) for _ in names]
        writer.writerow(cells * rng.choice((1, 1, 1, 2, 40)) if rng.random() < 0.2 else cells)
    data = out.getvalue().encode("utf-8", "replace")
    return bytes_changed(rng, data, b'"a,b\n') if rng.random() < 0.4 else data


def _parquet_rows(rng):
    import pyarrow
    from pyarrow import parquet

    rows, out = _rows(rng), io.BytesIO()
    try:
        table = pyarrow.Table.from_pylist(rows)
    except Exception:  # rows that no table holds, and what pyarrow stumbles over
        table = pyarrow.Table.from_pylist([{"text": json.dumps(row)} for row in rows])
    codec = rng.choice(("none", "snappy", "zstd", "gzip"))
    parquet.write_table(table, out, compression=codec, use_dictionary=rng.random() < 0.5)
    return bytes_changed(rng, out.getvalue()) if rng.random() < 0.8 else out.getvalue()


def _with_data(extension, *words, named):
    """`named`: by `--data`, else by the config. Each input has a name of its own: what is read is remembered."""

    def run(bench, data):
        write_model(bench)
        name = bench.write(f"data{next(_names)}.{extension}", data)
        try:
            text = BASE if named else BASE.replace("data.jsonl", name)
            config = bench.write("config.yml", text + "val_set_size: 0.1\n")
            bench.command(words[0], config, *words[1:], *(("--data", name) if named else ()))
        finally:
            (bench.folder / name).unlink()

    return run


def _checks(*extensions):
    return {
        f"{extension}-{what}": _with_data(extension, *words, named=named)
        for extension in extensions
        for what, words, named in (
            ("named", ("predict",), True),
            ("in-config", ("predict", "--gpu", "24GB"), False),
            ("check", ("check", "--gpu", "rtx-4090"), False),
        )
    }


_TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {
            "id": 0,
            "content": "<s>",
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
    ],
    "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"<s>": 0, "some": 1, "words": 2}, "unk_token": "<s>"},
}


def _tokenizer(rng):
    made = json.dumps(value_changed(rng, _TOKENIZER)).encode()
    if rng.random() < 0.5:
        return made
    real = ROOT / "examples" / "tiny" / "model" / "tokenizer.json"
    return bytes_changed(rng, real.read_bytes() if real.exists() and rng.random() < 0.5 else made)


def _with_tokenizer(bench, data):
    bench.write("given/config.json", TINY_MODEL)
    bench.write("given/tokenizer.json", data)
    rows = bench.write(f"rows{next(_names)}.jsonl", "\n".join(json.dumps(row) for row in _ROWS))
    try:
        config = bench.write("config.yml", BASE.replace("model: model", "model: given"))
        bench.command("predict", config, "--data", rows)
    finally:
        (bench.folder / rows).unlink()


_INFO = {
    "identity": {
        "file_name": "identity.json",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations", "system": "system"},
        "tags": {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"},
        "subset": "a",
        "split": "train",
        "file_sha1": "x",
    },
    "other": {"hf_hub_url": "x/y", "ranking": False, "columns": {"prompt": "instruction", "response": "output"}},
    "script": {"script_url": "x", "folder": "y", "num_samples": 3},
}
_LLAMAFACTORY = """model_name_or_path: model
stage: sft
do_train: true
finetuning_type: lora
dataset: identity,other,script
eval_dataset: other
dataset_dir: tables
template: llama3
cutoff_len: 256
per_device_train_batch_size: 1
output_dir: out
"""


def _info(rng):
    data = json.dumps(value_changed(rng, _INFO)).encode()
    if rng.random() < 0.1:
        data = json.dumps({"identity": odd_value(rng), **_INFO}).encode()
    return bytes_changed(rng, data) if rng.random() < 0.3 else data


def _predict_with_info(bench, data):
    write_model(bench)
    bench.write("tables/dataset_info.json", data)
    bench.command("predict", bench.write("config.yml", _LLAMAFACTORY), "--gpu", "24GB")


add(
    name="data-json",
    about="rows as JSON lines or JSON → `predict --data`, and named by the config: `predict`, `check --gpu`",
    extension="jsonl",
    make=_json_rows,
    checks=_checks("jsonl", "json"),
)
add(
    name="data-csv",
    about="rows as CSV → the same",
    extension="csv",
    make=_csv_rows,
    checks=_checks("csv"),
)
add(
    name="data-parquet",
    about="rows as Parquet → the same",
    extension="parquet",
    make=_parquet_rows,
    checks=_checks("parquet"),
)
add(
    name="tokenizer",
    about="a model's tokenizer.json → `predict --data`",
    extension="json",
    make=_tokenizer,
    checks={"predict": _with_tokenizer},
)
add(
    name="dataset-info",
    about="LLaMA-Factory's dataset_info.json → `predict`",
    extension="json",
    make=_info,
    checks={"predict": _predict_with_info},
)
