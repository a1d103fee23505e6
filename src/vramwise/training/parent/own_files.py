"""Which files of an output_dir runs write, and which of them earlier runs wrote.

The names are those of the embedded engine and of other trainers, read from transformers 5.22, PEFT 0.21, Axolotl 0.21,
LLaMA-Factory 0.9.5 and TRL 1.16. Files that are only appended to (memory.jsonl) are not listed, because nothing is
lost. The embedded engine handles `checkpoint-N` itself and never takes a name that is in use.

What earlier runs wrote is stored in `.vramwise-written.json`, bound to that folder. When a run begins, files that are
not ours are listed; when it ends, also what it wrote. A killed run wrote everything that was not there before. A file
that was changed since, and a folder that was copied or downloaded with its list, are not ours: this is judged by size,
time and the folder's inode.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import parse_json, read_file
from vramwise.training.plan import PLAN_FILE
from vramwise.whole_files import write_new

RECORDS = (PLAN_FILE, "oom.json", "oom-*.json", "oom-*.pickle", "axolotl.yml", "trl.yml", "llamafactory.yml")
# Saving a full model also deletes the shards of an earlier one.
_MODEL_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin", "model*.index.json", "pytorch_model*.index.json")
_ADAPTER_WEIGHTS = ("adapter_model*.safetensors", "adapter_model*.bin", "adapter_config.json")
_VALUE_HEAD = ("value_head.safetensors", "value_head.bin")
WEIGHTS = (*_MODEL_WEIGHTS, *_ADAPTER_WEIGHTS, *_VALUE_HEAD)
_MODEL_CONFIG = ("config.json", "generation_config.json")
_ALWAYS = (
    *("trainer_state.json", "training_args.bin"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece*.model"),
    *("chat_template.jinja", "chat_template.json"),
)
_CARD = ("README.md",)  # PEFT and other trainers write one, transformers alone does not
_CODE = ("modeling_*.py", "configuration_*.py", "tokenization_*.py")  # with trust_remote_code
_HOSTED = (
    *_CARD,
    *_MODEL_CONFIG,
    *("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"),
    *("all_results.json", "train_results.json", "eval_results.json", "predict_results.json"),
)
_OF_TRAINER = {
    "axolotl": ("debug.log", "snapshot.pickle", "profiler_trace.json"),
    "llamafactory": ("trainer_log.jsonl", "running_log.txt", "training_*.png", *_VALUE_HEAD),
}
_FOLDERS_OF_TRAINER = {"axolotl": ("merged",), "llamafactory": ("pissa_*",), "trl": ("completions",)}
CHECKPOINTS = "checkpoint-[0-9]*"
ANY_FILE = (*RECORDS, *WEIGHTS, *_ALWAYS, *_CODE, *_HOSTED, *(name for names in _OF_TRAINER.values() for name in names))
ANY_FOLDER = (CHECKPOINTS, *(name for names in _FOLDERS_OF_TRAINER.values() for name in names))


def files_of(engine: str, *, adapter: bool, custom_code: bool) -> tuple[str, ...]:
    """Return patterns of the files that a run with this engine writes directly into output_dir."""
    weights = (*_ADAPTER_WEIGHTS, *_CARD) if adapter else (*_MODEL_WEIGHTS, *_MODEL_CONFIG)
    hosted = (*_HOSTED, *_OF_TRAINER.get(engine, ())) if engine != "transformers" else ()
    return (*RECORDS, *_ALWAYS, *weights, *hosted, *(_CODE if custom_code else ()))


def folders_of(engine: str, *, resumes: bool) -> tuple[str, ...]:
    """Return patterns of the folders that it writes to; a resumed run leaves earlier checkpoints alone."""
    if engine == "transformers":
        return ()
    return (*(() if resumes else (CHECKPOINTS,)), *_FOLDERS_OF_TRAINER.get(engine, ()))


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


LIST = ".vramwise-written.json"
_MOST_BYTES = 4 * 1024**2
Stamp = tuple[int, int]  # size and modification time; zeros for folders, whose content may change
_FOLDER: Stamp = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFiles:
    """What is known about one output_dir.

    `kept`: files that were not ours when the run began. `written`: None if the run has not ended.
    """

    known: bool = False
    kept: Mapping[str, Stamp] = field(default_factory=dict)
    written: Mapping[str, Stamp] | None = field(default_factory=dict)
    records: bool = False  # the plan in the folder is ours, and therefore the records beside it

    def wrote(self, name: str, stamp: Stamp) -> bool:
        """Return whether an earlier run wrote this file, and nothing changed it since."""
        if self.records and matches(name, RECORDS):
            return True
        if not self.known:
            return False
        return name not in self.kept if self.written is None else self.written.get(name) == stamp


def own_files(output_dir: str | Path) -> OwnFiles:
    """Return what earlier runs wrote into this folder."""
    records = _is_plan(Path(output_dir) / PLAN_FILE)
    values = _read(Path(output_dir) / LIST)
    try:
        if values.get("folder") != Path(output_dir).stat().st_ino:
            return OwnFiles(records=records)
        written = values["written"]
        kept = _stamps(values["kept"])
        return OwnFiles(known=True, kept=kept, written=None if written is None else _stamps(written), records=records)
    except (OSError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return OwnFiles(records=records)


def entries(output_dir: str | Path) -> dict[str, Stamp]:
    """Return every file and folder in output_dir with a name that some run writes."""
    found = {}
    try:
        with os.scandir(output_dir) as listed:
            for entry in listed:
                folder = entry.is_dir()
                if matches(entry.name, ANY_FOLDER if folder else ANY_FILE):
                    found[entry.name] = _FOLDER if folder else _stamp(entry)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise VramwiseError(f"output_dir {output_dir} cannot be read: {error.strerror}") from error
    return found


def _stamp(entry: os.DirEntry[str]) -> Stamp:
    try:
        status = entry.stat()
    except OSError:  # a broken link
        status = entry.stat(follow_symlinks=False)
    return status.st_size, status.st_mtime_ns


@contextmanager
def recorded(output_dir: str | Path) -> Iterator[None]:
    """Record, around a run, what was there before it and what it wrote. An unreadable list is replaced."""
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    own = own_files(output_dir)
    kept = {name: stamp for name, stamp in entries(output_dir).items() if not own.wrote(name, stamp)}
    _write(output_dir, kept, None)
    try:
        yield
    finally:
        with suppress(VramwiseError, OSError):  # a full disk: the run counts as killed, which has the same effect
            written = {name: stamp for name, stamp in entries(output_dir).items() if kept.get(name) != stamp}
            _write(output_dir, {name: stamp for name, stamp in kept.items() if name not in written}, written)


def _write(output_dir: str | Path, kept: Mapping[str, Stamp], written: Mapping[str, Stamp] | None) -> None:
    folder = Path(output_dir)
    values = {"format": 1, "folder": folder.stat().st_ino, "kept": kept, "written": written}
    write_new(folder / LIST, json.dumps(values, indent=1).encode() + b"\n")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = parse_json(read_file(path, _MOST_BYTES, "a list of files"))
    except (VramwiseError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _stamps(values: Mapping[str, Any]) -> dict[str, Stamp]:
    return {str(name): (int(size), int(time)) for name, (size, time) in values.items()}


def _is_plan(path: Path) -> bool:
    """Return whether a file is the journal of a run, of this or an earlier version."""
    values = _read(path) if path.is_file() else {}
    return isinstance(values.get("format"), int) and {"config_path", "output_dir", "attempt"} <= values.keys()
