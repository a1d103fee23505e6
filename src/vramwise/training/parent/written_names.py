"""The names that a run writes or deletes in its output_dir: the embedded engine's and those of other trainers.

Read from transformers 5.22, PEFT 0.21, Axolotl 0.21, LLaMA-Factory 0.9.5 and TRL 1.16. Files that are only appended to
(memory.jsonl) are not listed, because nothing is lost. The embedded engine handles `checkpoint-N` itself and never
takes a name that is in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from vramwise.training.plan import PLAN_FILE

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
