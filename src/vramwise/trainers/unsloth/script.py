"""Writes a new training as Unsloth's notebooks do: load, add LoRA, convert the data to text, train."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vramwise.trainers.script_text import held_out, literal, loading, reason, script_text
from vramwise.trainers.starting import Source, Start
from vramwise.types import RunSpec

SCRIPT_FIRST = True

# Keys that are arguments of from_pretrained and get_peft_model, with their names there.
_MODEL = {
    "model_name_or_path": "model_name",
    **{
        name: name
        for name in ("max_seq_length", "load_in_4bit", "load_in_8bit", "load_in_16bit", "full_finetuning", "dtype")
    },
    "use_exact_model_name": "use_exact_model_name",
}
_ADAPTER = {
    "lora_r": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_target_modules": "target_modules",
}
_CHECKPOINTING = "use_gradient_checkpointing"
_ELSEWHERE = _MODEL.keys() | _ADAPTER.keys() | {_CHECKPOINTING, "use_peft", "datasets", "dataset_name"}
_ELSEWHERE |= {"test_split_size"}
_SETTLED = "vramwise: ignore[several-cards-one-used] torchrun starts a process on each card"
_ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request."


def script(values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
    """Return the script's text. `values`: keys of its calls. `comments`: the reasons for its lines."""
    chat = _chats(start.source)
    blocks = [
        list(_imports(chat)),
        list(_model(values, comments)),
        list(_adapter(values, comments)),
        list(_template(chat)),
        list(_FORMATS[start.source.format](start.source)),
        list(_dataset(values)),
        list(_trainer(values, comments)),
    ]
    return script_text([*head, *([_SETTLED] if start.gpus > 1 else [])], blocks)


def launch_script(run: RunSpec, path: str) -> str:
    """Return the launch command of a script; Unsloth uses several cards only under torchrun."""
    several = f"torchrun --nproc_per_node {run.batch.gpus}" if run.batch.gpus > 1 else "python"
    return f"{several} {path}"


def _chats(source: Source) -> bool:
    """Return whether rows hold messages, which a template turns into text."""
    return source.format == "chat" or source.turns


def _imports(chat: bool) -> Iterator[str]:
    yield "from unsloth import FastLanguageModel  # first: it changes what the others import"
    if chat:
        yield "from unsloth.chat_templates import get_chat_template"
    yield "from datasets import load_dataset"
    yield "from trl import SFTConfig, SFTTrainer"


def _model(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    yield "model, tokenizer = FastLanguageModel.from_pretrained("
    for key, name in _MODEL.items():
        if values.get(key) is not None:
            yield f"    {name}={literal(values[key])},{reason(comments, key)}"
    if not values.get("use_peft"):
        yield from _checkpointing(values, comments)
    yield ")"


def _adapter(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    if not values.get("use_peft"):
        return
    yield "model = FastLanguageModel.get_peft_model("
    yield "    model,"
    for key, name in _ADAPTER.items():
        if key in values:
            yield f"    {name}={literal(values[key])},{reason(comments, key)}"
    yield from _checkpointing(values, comments)
    yield ")"


def _checkpointing(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    if _CHECKPOINTING in values:
        yield f"    {_CHECKPOINTING}={literal(values[_CHECKPOINTING])},{reason(comments, _CHECKPOINTING)}"


def _template(chat: bool) -> Iterator[str]:
    if chat:
        yield "if tokenizer.chat_template is None:  # base models often have none"
        yield '    tokenizer = get_chat_template(tokenizer, chat_template="chatml")'
        yield ""


def _dataset(values: Mapping[str, Any]) -> Iterator[str]:
    yield from loading(values)
    yield "dataset = dataset.map(as_text, batched=True, remove_columns=dataset.column_names)"
    yield held_out(values)


def _alpaca(source: Source) -> Iterator[str]:
    asked = ["instruction", *(["input"] if "input" in source.columns else []), "output"]
    titles = {"instruction": "Instruction", "input": "Input", "output": "Response"}
    parts = "\n\n".join(f"### {titles[name]}:\n{{}}" for name in asked)
    yield f'PROMPT = """{_ALPACA}\n\n{parts}"""'
    yield ""
    yield ""
    yield "def as_text(rows):"
    columns = ", ".join(f"rows[{literal(source.column(name))}]" for name in asked)
    yield f"    samples = zip({columns}, strict=True)"
    yield '    return {"text": [PROMPT.format(*sample) + tokenizer.eos_token for sample in samples]}'
    yield ""


def _chat(source: Source) -> Iterator[str]:
    column = literal(source.column("messages"))
    if (source.role, source.content) != ("role", "content"):
        roles = dict(zip(source.speakers, ("user", "assistant"), strict=True))
        role, content = literal(source.role), literal(source.content)
        yield f"ROLES = {json.dumps(roles, ensure_ascii=False)}"
        yield ""
        yield ""
        yield "def as_messages(turns):"
        turn = f'{{"role": ROLES.get(turn[{role}], turn[{role}]), "content": turn[{content}]}}'
        yield f"    return [{turn} for turn in turns]"
        yield ""
        yield ""
        messages = "as_messages(turns)"
    else:
        messages = "turns"
    yield "def as_text(rows):"
    text = f"tokenizer.apply_chat_template({messages}, tokenize=False)"
    yield f'    return {{"text": [{text} for turns in rows[{column}]]}}'
    yield ""


def _prompt(source: Source) -> Iterator[str]:
    prompt, completion = (literal(source.column(name)) for name in ("prompt", "completion"))
    yield "def as_text(rows):"
    yield f"    samples = zip(rows[{prompt}], rows[{completion}], strict=True)"
    if source.turns:
        text = "tokenizer.apply_chat_template(prompt + completion, tokenize=False)"
    else:
        text = "prompt + completion + tokenizer.eos_token"
    yield f'    return {{"text": [{text} for prompt, completion in samples]}}'
    yield ""


def _text(source: Source) -> Iterator[str]:
    yield "def as_text(rows):"
    column = literal(source.column("text"))
    yield f'    return {{"text": [text + tokenizer.eos_token for text in rows[{column}]]}}'
    yield ""


_FORMATS = {"alpaca": _alpaca, "chat": _chat, "prompt": _prompt, "text": _text}


def _trainer(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    yield "trainer = SFTTrainer("
    yield "    model=model,"
    yield "    processing_class=tokenizer,"
    yield '    train_dataset=dataset["train"],'
    yield '    eval_dataset=dataset["test"],'
    yield "    args=SFTConfig("
    for key, value in values.items():
        if key not in _ELSEWHERE and value is not None:
            yield f"        {key}={literal(value)},{reason(comments, key)}"
    yield "    ),"
    yield ")"
    yield "trainer.train()"
    yield "trainer.save_model()"
