"""The second draw of scripts for a card: the trainers' own examples, other people's, and notebooks of the corpus."""

from __future__ import annotations

from typing import Any

import script_cases
from script_parts import ALPACA, MODELS, model, notebook

_QA_DATASET = """import json, torch
class QADataset(torch.utils.data.Dataset):
    def __init__(self, path, tokenizer, source, target):
        rows = json.load(open(path))
        cut = dict(add_special_tokens=False, padding="max_length", truncation=True)
        self.rows = []
        for row in rows:
            asked = tokenizer(row["input"], max_length=source, **cut)
            told = tokenizer(row["output"], max_length=target, **cut)
            ids = asked["input_ids"] + told["input_ids"] + [tokenizer.pad_token_id]
            mask = asked["attention_mask"] + told["attention_mask"] + [1]
            labels = [-100] * source + told["input_ids"] + [tokenizer.pad_token_id]
            made = {"input_ids": ids, "attention_mask": mask, "labels": labels}
            self.rows.append({name: torch.tensor(value) for name, value in made.items()})
    def __getitem__(self, place): return self.rows[place]
    def __len__(self): return len(self.rows)
"""
_CHESS_DATA = """import torch
class Rows(torch.utils.data.Dataset):
    def __init__(self, length): self.length = length
    def __getitem__(self, place):
        ids = torch.arange(self.length) % 3000 + 20
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
    def __len__(self): return 600
def load_sft_single_move_dataset(tokenizer, max_length, **more): return Rows(max_length), Rows(max_length)
"""
_LORA = "--use_peft --lora_r 16 --lora_target_modules all-linear"
_PAIRS = {"columns": {"prompt": "short", "chosen": "long", "rejected": "long"}}


def of_trl(kind: str, shape: str, data: dict[str, Any], arguments: str) -> dict[str, Any]:
    """A script that TRL comes with."""
    length = int(arguments.partition("--max_length ")[2].split()[0])
    shared = f"--model_name_or_path {MODELS}/{shape} --dataset_name trl-lib/some --output_dir out --report_to none "
    return {
        "file": f"trl_1.14_scripts_{kind}.py",
        "shape": shape,
        "data": data,
        "edits": [],
        "args": shared + arguments,
        "lengths": length,
    }


# "lengths": tokens of every row. The made-up texts fill rows, so none is padded and no mask is passed.
CASES: dict[str, dict[str, Any]] = {
    "alora_plain": {
        # As the first draw's, but an ordinary LoRA: what of the difference is aLoRA's own?
        **script_cases.CASES["alora"],
        "lengths": 2048,
        "edits": [*script_cases.CASES["alora"]["edits"], (r"\n\s*alora_invocation_tokens=invocation_tokens,", "")],
    },
    "qwen_sft": {
        "lengths": 2500,
        "file": "SLR567_qwen-sft__finetune_lora.py",
        "shape": "qwen2_7b4",
        "data": ALPACA,
        "edits": [
            model("/data/jianbingshen/module/Qwen2-7B-Instruct", "qwen2_7b4"),
            (r"/home/yc37974/lrs/marketing_data_generation_digitaling/marketing_text\.json", "data.json"),
            (r"/data/jianbingshen/module/Qwen2_7B_instruct_lora", "out"),
            (r"per_device_train_batch_size=4", "per_device_train_batch_size=2"),  # the card is shared
        ],
        "written": "data.json",
        "words": 2600,
    },
    "chess_sft": {
        "lengths": 512,
        "file": "KameniAlexNea_global-chess-challenge__train_sft_single.py",
        "shape": "gemma3_270m",
        "data": ALPACA,
        "edits": [
            model("unsloth/gemma-3-270m-it-unsloth-bnb-4bit", "gemma3_270m"),
            (r", fix_mistral_regex=True", ""),
            (r"dataloader_num_workers=4", "dataloader_num_workers=0"),
            (r"per_device_train_batch_size=24", "per_device_train_batch_size=8"),  # the card is shared
        ],
        "stubs": {
            "src/sft_data.py": _CHESS_DATA,
            "src/tokenizer_utils.py": "def ensure_chat_template(tokenizer): return tokenizer\n",
        },
        "set": ["max_length=512"],
    },
    "dora": {
        "lengths": 1024,
        "file": "huggingface_peft__examples_dora_finetuning_dora_finetuning.py",
        "shape": "llama8b4",
        "data": {"columns": {"text": "long"}},
        "edits": [(r"\n\s*logging_dir=\"./logs\",", "")],
        "args": f"--base_model {MODELS}/llama8b4 --output_dir out --batch_size 2 --cutoff_len 1024 --use_dora",
    },
    "olora": {
        "lengths": 1024,
        "file": "huggingface_peft__examples_olora_finetuning_olora_finetuning.py",
        "shape": "llama8b4",
        "data": ALPACA,
        "edits": [],
        "args": f"--base_model {MODELS}/llama8b4 --output_dir out --batch_size 2 --cutoff_len 1024 --dtype bfloat16",
    },
    "trl_kto": of_trl(
        "kto",
        "qwen2_05b",
        {"columns": {"prompt": "short", "completion": "long", "label": "=1,0"}},
        f"--per_device_train_batch_size 4 --max_length 1024 {_LORA}",
    ),
    "trl_dpo": of_trl("dpo", "llama1b8", _PAIRS, f"--per_device_train_batch_size 2 --max_length 1024 {_LORA}"),
    "trl_sft_qlora": of_trl(
        "sft",
        "llama8b4",
        {"columns": {"messages": "chat"}},
        f"--per_device_train_batch_size 2 --max_length 2048 --load_in_4bit {_LORA}",
    ),
    "mbpp_sft": {
        "lengths": 1024,
        "file": "Rashod4_lora-dpo-codegen__train_sft.py",
        "shape": "phi3_mini6",
        "data": {"columns": {"prompt": "short", "code": "long"}},
        "edits": [model("microsoft/Phi-3.5-mini-instruct", "phi3_mini6")],
    },
    "owl_sft": {
        "lengths": 1024,
        "file": "GMorgulis_subliminal_learning_qwen2.5-7b-instruct__notebooks_finetune.ipynb",
        "shape": "qwen3_4b8",
        "data": {"columns": {"prompt": "short", "completion": "long"}},
        "edits": [
            model("Qwen/Qwen3-4B-Instruct-2507", "qwen3_4b8"),
            (r"push_to_hub=True", "push_to_hub=False"),
            (r"\n\s*hub_token=[^\n]*,", ""),
            (r"per_device_train_batch_size=30", "per_device_train_batch_size=8"),  # the card is shared
        ],
        "drop": ["drive.mount", "login("],
    },
    "arxiv_dpo": {
        "lengths": 2048,
        "file": "HAE-RAE_nlp-arxiv-translator__train_dpo.py",
        "shape": "gemma2_9b3",
        "data": {"columns": {"prompt": "short", "chosen": "long", "rejected": "long"}, "rows": 120},
        "edits": [
            (r"Translation-EnKo/gukbap-gemma-2-9b-it-translation[\w.-]*", f"{MODELS}/gemma2_9b3"),
            (r"evaluation_strategy", "eval_strategy"),
            (r"\n\s*deepspeed=[^\n]*,", ""),
            (r"\n\s*max_prompt_length=[^\n]*,", ""),
            (r"warmup_ratio=0\.03", "warmup_steps=1"),
            (r"seq_len = 4096", "seq_len = 2048"),  # the card is shared
            (r"dataset\['valid'\]", "dataset['validation']"),
            (r"tokenizer=tokenizer,", "processing_class=tokenizer,"),
        ],
        "words": 2600,
    },
    "wesson_lora": {
        "lengths": 1175,
        "file": "WessonZZ_Qwen2.5-7B-Instruct-ft__finetune_lora.py",
        "shape": "qwen2_7b4",
        "data": ALPACA,
        "edits": [
            (r"'Qwen2\.5-7B-Instruct'", f"'{MODELS}/qwen2_7b4'"),
            (r"os\.path\.join\(data_dir, '\w+\.json'\)", "'data.json'"),
        ],
        "stubs": {"tokenizer.py": _QA_DATASET},
        "written": "data.json",
        "set": ["max_length=1175"],
    },
    "phi3_admissions": {
        "file": "7rohxt_finetune-ollama-unsloth__finetune.ipynb",
        "shape": "phi3_mistral6",
        "unsloth": True,
        "data": {"columns": {"prompt": "short", "response": "long"}},
        "edits": [
            model("unsloth/Phi-3-mini-4k-instruct-bnb-4bit", "phi3_mistral6"),
            (r"/content/drive/MyDrive/patient_admission\.json", "data.json"),
            (r"from dotenv import load_dotenv", ""),
            (r"load_dotenv\(.*\)", ""),
        ],
        "written": "data.json",
        "drop": ["drive.mount", "wandb.login"],
    },
    "llama3_ollama": notebook("Llama3_(8B)-Ollama", "unsloth/llama-3-8b-bnb-4bit", "llama8b4", ALPACA),
    "mistral_small": notebook(
        "Mistral_Small_(22B)-Alpaca", "unsloth/Mistral-Small-Instruct-2409", "mistral22b2", ALPACA
    ),
}
