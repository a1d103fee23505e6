"""Writes a config of TRL's command as a Python script, with the same values as arguments of TRL's classes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vramwise.trainers.script_text import held_out, literal, loading, reason, script_text
from vramwise.trainers.starting import Source, Start
from vramwise.types import RunSpec

SCRIPT_FIRST = False

# Keys of the command that are not arguments of SFTConfig or DPOConfig; the script expresses them differently.
_MODEL = frozenset({"model_name_or_path", "dtype", "attn_implementation", "load_in_4bit"})
_ADAPTER = {"lora_r": "r", "lora_alpha": "lora_alpha", "lora_target_modules": "target_modules"}
_ELSEWHERE = _MODEL | _ADAPTER.keys() | {"use_peft", "datasets", "dataset_name", "test_split_size", "env"}
_LAUNCHER = frozenset({"accelerate_config", "num_processes"})
# A chat template for tokenizers without one.
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}",
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
)
_DTYPES = {"bfloat16": "torch.bfloat16", "float16": "torch.float16", "float32": "torch.float32"}


def script(values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
    """Return the script's text. `values` are those of the config, `comments` the reasons for its lines."""
    kind = "DPO" if start.preference else "SFT"
    conversational = start.source.conversational
    blocks = [
        list(_environment(values)),
        list(_imports(values, kind, conversational)),
        list(_data(values, start)),
        list(_tokenizer(values)) if conversational else [],
        list(_model(values, comments)),
        list(_adapter(values, comments)),
        list(_arguments(values, kind, comments)),
        list(_trainer(values, kind, conversational)),
    ]
    return script_text(head, blocks)


def launch_script(run: RunSpec, path: str) -> str:
    """Return the launch command; accelerate starts a process for each GPU."""
    several = f"accelerate launch --num_processes {run.batch.gpus}" if run.batch.gpus > 1 else "python"
    return f"{several} {path}"


def _environment(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield variables that torch reads when it is imported."""
    if values.get("env"):
        yield "import os"
        yield ""
        yield from (f"os.environ[{literal(name)}] = {literal(str(value))}" for name, value in values["env"].items())


def _imports(values: Mapping[str, Any], kind: str, conversational: bool) -> Iterator[str]:
    quantised = bool(values.get("load_in_4bit"))
    yield "import torch"
    yield "from datasets import load_dataset"
    if values.get("use_peft"):
        yield "from peft import LoraConfig"
    names = [name for name, used in (("AutoTokenizer", conversational), ("BitsAndBytesConfig", quantised)) if used]
    if names:
        yield f"from transformers import {', '.join(names)}"
    yield f"from trl import {kind}Config, {kind}Trainer"


def _data(values: Mapping[str, Any], start: Start) -> Iterator[str]:
    yield from loading(values)
    yield from _mapped(start.source)
    yield held_out(values)


def _mapped(source: Source) -> Iterator[str]:
    """Yield the lines that rename columns to the names that TRL reads."""
    if source.format == "alpaca":
        asked = f"row[{literal(source.column('instruction'))}]"
        if "input" in source.columns:
            more = f"row[{literal(source.column('input'))}]"
            asked += f' + ("\\n\\n" + {more} if {more} else "")'
        yield "dataset = dataset.map("
        yield "    lambda row: {"
        yield f'        "prompt": {asked},'
        yield f'        "completion": row[{literal(source.column("output"))}],'
        yield "    },"
        yield "    remove_columns=dataset.column_names,"
        yield ")"
    elif source.format == "chat" and source.role != "role":
        roles = dict(zip(source.speakers, ("user", "assistant"), strict=True))
        role, content = literal(source.role), literal(source.content)
        yield f"roles = {json.dumps(roles, ensure_ascii=False)}"
        yield "dataset = dataset.map("
        yield "    lambda row: {"
        yield '        "messages": ['
        yield f'            {{"role": roles.get(turn[{role}], turn[{role}]), "content": turn[{content}]}}'
        yield f"            for turn in row[{literal(source.column('messages'))}]"
        yield "        ]"
        yield "    },"
        yield "    remove_columns=dataset.column_names,"
        yield ")"
    else:
        for name, column in source.columns.items():
            if name != column and source.format != "text":
                yield f"dataset = dataset.rename_column({literal(column)}, {literal(name)})"


def _model(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    yield "model_init_kwargs = {"
    if "dtype" in values:
        yield f'    "dtype": {_DTYPES[values["dtype"]]},{reason(comments, "dtype")}'
    if values.get("attn_implementation"):
        attention = literal(values["attn_implementation"])
        yield f'    "attn_implementation": {attention},{reason(comments, "attn_implementation")}'
    if values.get("load_in_4bit"):
        dtype = _DTYPES[values.get("dtype", "float32")]
        quantised = f'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype={dtype})'
        yield f'    "quantization_config": {quantised},'
    yield "}"


def _adapter(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    if not values.get("use_peft"):
        return
    yield f"peft_config = LoraConfig({reason(comments, 'use_peft')}"
    for key, name in _ADAPTER.items():
        if key in values:
            yield f"    {name}={literal(values[key])},{reason(comments, key)}"
    yield "    lora_dropout=0.05,"
    yield '    task_type="CAUSAL_LM",'
    yield ")"


def _arguments(values: Mapping[str, Any], kind: str, comments: Mapping[str, str]) -> Iterator[str]:
    yield f"args = {kind}Config("
    for key in _argument_keys(values):
        yield f"    {key}={literal(values[key])},{reason(comments, key)}"
    yield "    model_init_kwargs=model_init_kwargs,"
    yield ")"


def _argument_keys(values: Mapping[str, Any]) -> Sequence[str]:
    return [key for key, value in values.items() if key not in _ELSEWHERE | _LAUNCHER and value is not None]


def _tokenizer(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the model's tokenizer with a chat template, without which TRL stops."""
    yield f"tokenizer = AutoTokenizer.from_pretrained({literal(values['model_name_or_path'])})"
    yield "if tokenizer.chat_template is None:  # base models often have none"
    yield "    tokenizer.chat_template = ("
    yield from (f"        {literal(part)}" for part in _CHATML)
    yield "    )"


def _trainer(values: Mapping[str, Any], kind: str, conversational: bool) -> Iterator[str]:
    yield f"trainer = {kind}Trainer("
    yield f"    model={literal(values['model_name_or_path'])},"
    yield "    args=args,"
    if conversational:
        yield "    processing_class=tokenizer,"
    yield '    train_dataset=dataset["train"],'
    yield '    eval_dataset=dataset["test"],'
    if values.get("use_peft"):
        yield "    peft_config=peft_config,"
    yield ")"
    yield "trainer.train()"
    yield "trainer.save_model()"
