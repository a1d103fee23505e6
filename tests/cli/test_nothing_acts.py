"""Whatever comes in, at every entrance of every command: what goes out is seen and does nothing.

No control character but the line ends that are ours, no turned text, valid UTF-8, and no line that a CI service takes
for a command, other than those of `--format github`.
"""

import io
import json
import os
import pickle
import re
import sys
from pathlib import Path

import pytest

from installed import NOT_THIS_SYSTEM
from vramwise.cli.main import COMMANDS, main

HOSTILE = (
    "x\x1b]52;c;aGk=\x07\x01\x08\x0b\x0c\x0e\x7f\t\x9b31m\u202egnp.\u2066x\u200f\ufeff\n::error::gotcha",
    "x\r::error::gotcha\x85::error::gotcha\u2028::error::gotcha",
    "::error::gotcha",
    "##[error]gotcha ##vso[task.complete]",
)
# What names and options can hold besides: bytes that are not UTF-8 (as Python keeps them).
HOSTILE_NAMES = (*HOSTILE, "\udcff\udc9b")
ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

CONFIG = (
    "base_model: HuggingFaceTB/SmolLM2-135M\nmicro_batch_size: 2\nsequence_len: 64\ngradient_accumulation_steps: 1\n"
)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The whole program in this process: exit code, standard output and error, checked for what may not be there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "true")  # a diff, too, goes to a log then
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)
    # Where the page was built, `serve` would serve it until somebody ends it.
    monkeypatch.setattr("socketserver.BaseServer.serve_forever", lambda *_: None)

    def start(*words):
        out, err = io.BytesIO(), io.BytesIO()
        streams = [io.TextIOWrapper(raw, encoding="utf-8", write_through=True) for raw in (out, err)]
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["vramwise", *map(str, words)])
            patched.setattr(sys, "stdout", streams[0])
            patched.setattr(sys, "stderr", streams[1])
            with pytest.raises(SystemExit) as left:
                main()
        result = left.value.code, out.getvalue().decode(), err.getvalue().decode()
        inspect(*result[1:], commands="github" in words)
        return result

    return start


def inspect(out, err, *, commands=False):
    for text in (out, err):
        assert not ACTING.search(text), text
        assert "Traceback" not in text
        for line in text.split("\n"):
            assert commands or not re.match(r"\s*::", line), text
            assert line.lstrip().startswith("::") or not re.search(r"##\w*\[", line), text
    if commands:
        assert all(re.match("::(error|warning|notice) file=", line) for line in out.splitlines())


def quoted(text):
    """The text as YAML in double quotes."""
    return json.dumps(text, ensure_ascii=True)


FORMATS = [("--format", name) for name in ("text", "json", "sarif", "github")]
JUDGING = [("check", *words) for words in FORMATS] + [
    ("check", "--show-resolved"),
    ("check", "--gpu", "t4", "--predict", "--select", "tight-fit,does-not-fit,unknown-key,unknown-optimizer"),
    ("fix", "--diff", "--unsafe-fixes"),
    ("fix",),
    ("check", "--fix"),
    ("predict", "--gpu", "t4"),
    ("predict", "--format", "json"),
    ("train", "--random-weights"),
]
CONFIGS = {
    "value": lambda text: CONFIG + f"optimizer: {text}\nattn_implementation: {text}\nrl: {text}\n",
    "adapter": lambda text: CONFIG + f"adapter: {text}\nlora_r: 8\n",
    "wrong-type": lambda text: CONFIG.replace("micro_batch_size: 2", f"micro_batch_size: {text}"),
    "key": lambda text: CONFIG + f"{text}: 1\nfsdp_config:\n  {text}: {text}\n",
    "nested": lambda text: CONFIG + f"datasets:\n  - path: {text}\n    {text}: {text}\nplugins: [{text}]\n",
    "model": lambda text: CONFIG.replace("HuggingFaceTB/SmolLM2-135M", text),
    "duplicate": lambda text: CONFIG + f"{text}: 1\n{text}: 2\n",
    "deepspeed": lambda text: CONFIG + f"deepspeed: {text}\nlora_target_modules: [{text}]\nadapter: lora\nlora_r: 8\n",
    "tag": lambda text: CONFIG + f"optimizer: !{text[1:-1]} x\n",
    "broken": lambda text: CONFIG + f"optimizer: [{text}\n",
    "dtype": lambda text: CONFIG + f"bf16: {text}\nfp16: {text}\ntorch_dtype: {text}\nmax_grad_norm: .inf\n",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("words", JUDGING, ids=" ".join)
@pytest.mark.parametrize("entrance", CONFIGS)
def test_what_a_config_holds(run, entrance, words):
    for text in HOSTILE:
        Path("config.yml").write_text(CONFIGS[entrance](quoted(text)))
        run(words[0], "config.yml", *words[1:])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("words", [*JUDGING, ("diagnose",), ("replay",), ("report",)], ids=" ".join)
@pytest.mark.parametrize("there", [True, False])
def test_the_name_of_a_file(run, words, there):
    for text in HOSTILE_NAMES:
        name = f"{text}.yml"
        if there:
            Path(name).write_text(CONFIG + "batch_size: 16\noptimizer: nonsense\neval_batch_size: 4\nval_set_size: 1\n")
        run(*words, "--", name)


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason=NOT_THIS_SYSTEM)
def test_a_name_that_is_not_utf8_is_no_traceback(run, form):
    Path(os.fsdecode(b"\xff.yml")).write_text(CONFIG + "batch_size: 16\n")
    code, out, _ = run("check", os.fsdecode(b"\xff.yml"), "--format", form)
    assert code == 1
    assert "%FF.yml" in out if form == "sarif" else "\\xff.yml" in out


def test_numbers_that_json_lacks(run):
    Path("config.yml").write_text(CONFIG + "max_grad_norm: .inf\nlora_dropout: .nan\n")
    _, out, _ = run("check", "config.yml", "--format", "json", "--select", "batch-size-set")
    assert json.loads(out, parse_constant=pytest.fail)["files"][0]["resolved"]["max_grad_norm"] == "Infinity"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "option",
    [
        "gpu",
        "torch",
        "alloc-conf",
        "select",
        "what-if",
        "memory-limit",
        "gpus",
        "format",
        "lengths",
        "model",
        "html",
        "snapshot",
        "config",
        "device",
        "engine",
        "x",
    ],
)
def test_options(run, option):
    option = f"--{option}"
    Path("config.yml").write_text(CONFIG)
    for name in COMMANDS:
        for text in HOSTILE_NAMES:
            if not (name == "train" and option in ("--alloc-conf", "--torch")):
                run(name, "config.yml", option, text if option != "--what-if" else f"optimizer={text}")
            run(name, f"{option}{text}")


def test_commands_and_rules(run):
    for text in HOSTILE_NAMES:
        run(text)
        run("explain", text)
        run("check", "--ignore", text, "config.yml")
        Path(text).touch()
        run(text)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_take_nothing_more(run, name):
    run(name)
    run(name, "--help")


def test_lengths(run):
    Path("config.yml").write_text(CONFIG)
    for text in HOSTILE:
        for content in (text, f"12\n{text}\n", json.dumps({"length": text}), json.dumps({text: 3}), json.dumps([text])):
            Path("lengths.txt").write_text(content)
            run("predict", "config.yml", "--gpu", "t4", "--lengths", "lengths.txt")


def test_models(run):
    Path("config.yml").write_text(CONFIG)
    fields = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    fields |= {"vocab_size": 1000, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    for text in HOSTILE:
        for name in (*fields, "hidden_act", "torch_dtype", "layer_types", "rope_scaling", "quantization_config", text):
            for value in (text, [text], {"quant_method": text, "rope_type": text}):
                Path("config.json").write_text(json.dumps({**fields, name: value}))
                run("predict", "config.yml", "--gpu", "t4", "--model", "config.json")
        Path(f"m{text}.json").write_text(json.dumps(fields))
        run("predict", "config.yml", "--gpu", "t4", "--model", f"m{text}.json")
        run("predict", "config.yml", "--format", "json", "--model", f"m{text}.json")


LOG = (
    "{0}\n[{0}] step 1 loss 2.0\nTraceback (most recent call last):\n"
    '  File "/home/{0}/train.py", line 3, in {0}\n    {0}\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.00 GiB of "
    "which 1.00 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by "
    "PyTorch but unallocated. {0}\n{0}RuntimeError: expected scalar type {0} but found {0}\n"
)


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs(run, form):
    for text in HOSTILE:
        Path("config.yml").write_text(CONFIG + f"{quoted(text)}: 1\n")
        for log in (LOG.format(text), f"CUDA error: {text}\nKilled {text}\n", f"RuntimeError: {text} dtype {text}"):
            Path("train.log").write_text(log)
            run("diagnose", "train.log", "--format", form)
            run("diagnose", "train.log", "--format", form, "--config", "config.yml", "--gpu", "rtx-4090")


def recording(text):
    frames = [{"filename": text, "name": text, "line": 7}]
    entry = {"addr": 1 << 30, "size": 1 << 21, "stream": 0, "time_us": 0, "frames": frames}
    entries = [{**entry, "action": action} for action in ("segment_alloc", "alloc")]
    entries.append({**entry, "action": "oom", "size": 1 << 33, "device_free": 1 << 20})
    block = {
        "address": 1 << 30,
        "size": 1 << 21,
        "requested_size": 1 << 21,
        "state": "active_allocated",
        "frames": frames,
    }
    segment = {"device": 0, "address": 1 << 30, "total_size": 1 << 21, "stream": 0, "segment_type": "large"}
    return {
        "segments": [segment | {"is_expandable": False, "frames": frames, "blocks": [block]}],
        "device_traces": [entries],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        "external_annotations": [],
    }


@pytest.mark.parametrize(
    "words", [("replay",), ("replay", "--format", "json"), ("diagnose", "--snapshot")], ids=" ".join
)
def test_recordings(run, words):
    for text in HOSTILE:
        good = recording(text)
        settings = {**good, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": text, text: text}}
        action = {**good, "device_traces": [[{**good["device_traces"][0][0], "action": text}]]}
        for made in (good, settings, action, {text: text}, text):
            for name, data in (("run.pickle", pickle.dumps(made)), ("run.json", json.dumps(made).encode())):
                Path(name).write_bytes(data)
                run(*words, name)
        Path("page.html").unlink(missing_ok=True)
        Path("run.pickle").write_bytes(pickle.dumps(good))
        run("diagnose", "--snapshot", "run.pickle", "--html", "page.html")
        assert not ACTING.search(Path("page.html").read_text())


def test_reports(run, tmp_path):
    for number, text in enumerate(HOSTILE):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        start = {"kind": "start", "attempt": 1, "step": 0, "max_steps": text, "device": text, "device_bytes": 1 << 34}
        records = [
            {"kind": "decision", "what": "attempt", "attempt": text, "micro_batch_size": text, "resume_from": text},
            {"kind": "decision", "what": "out-of-memory", "phase": text, "step": text, "next": text},
            {"kind": "decision", "what": "advice", "advice": [text]},
            start,
            {"kind": "warning", "attempt": 1, "rule": text, "step": text, "message": text},
        ]
        (folder / "memory.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        run("report", folder, "--html", folder / "page.html")
        if (folder / "page.html").exists():
            assert not ACTING.search((folder / "page.html").read_text())
        (folder / "memory.jsonl").write_text(json.dumps({**start, "kind": text}) + "\n" + text)
        run("report", folder)


def test_project_settings_and_environment(run, monkeypatch):
    Path("config.yml").write_text(CONFIG)
    for text in HOSTILE:
        if "\0" not in text:
            monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
            run("check", "config.yml", "--show-resolved")
            run("predict", "config.yml", "--gpu", "t4")
        value = json.dumps(text)
        for line in (
            f"gpu = {value}",
            f"{value} = 1",
            f"select = [{value}]",
            f"min-severity = {value}",
            f"torch = {text}",
        ):
            Path("pyproject.toml").write_text(f"[tool.vramwise]\n{line}\n")
            run("check", "config.yml")
        Path("pyproject.toml").unlink()
