"""Scripts and notebooks of the corpus, ready to run on a card without a hub: `python script_cases.py CORPUS OUT`.

Each gets a local model of its family (real widths, few layers, random weights), made-up data with the columns it reads,
and the edits listed here: names of models, arguments that the installed releases no longer take, cells that install,
show or generate. Everything else is as its author wrote it. Writes OUT/adapted/, OUT/cases.json and, with
`vramwise predict` on the adapted file, OUT/predictions.jsonl: before anything has run.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

MODELS = "/tmp/scripts-card/models"
VERSIONS = {
    "transformers": "5.17.0",
    "trl": "1.15.0",
    "peft": "0.21.2",
    "bitsandbytes": "0.50.2",
    "accelerate": "1.15.0",
    "unsloth": "2026.10.9",
}
_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-05}
_MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}
_QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "rms_norm_eps": 1e-06}


def shape(base: dict[str, Any], numbers: str, **more: Any) -> dict[str, Any]:
    """A config: hidden, inner, layers, heads, key-value heads, width of a head and vocabulary, in this order."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    values = [int(one) for one in numbers.split()]
    return {**base, **dict(zip((*names, "head_dim", "vocab_size"), values, strict=True)), **more}


_LONG = {"max_position_embeddings": 32768, "tie_word_embeddings": False}
SHAPES = {
    "llama8b4": shape(_LLAMA, "4096 14336 4 32 8 128 128256", **_LONG),
    "llama1b8": shape(_LLAMA, "2048 8192 8 32 8 64 128256", **_LONG | {"tie_word_embeddings": True}),
    "mistral7b6": shape(_MISTRAL, "4096 14336 6 32 8 128 32768", **_LONG),
    "nemo3": shape(_MISTRAL, "5120 14336 3 32 8 128 131072", **_LONG),
    "qwen2_7b4": shape(_QWEN2, "3584 18944 4 28 4 128 152064", **_LONG),
    "qwen2_05b": shape(_QWEN2, "896 4864 24 14 2 64 151936", **_LONG | {"tie_word_embeddings": True}),
    "qwen3_14b3": shape(
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rms_norm_eps": 1e-06},
        "5120 17408 3 40 8 128 151936",
        **_LONG,
    ),
    "gemma7b4": shape(
        {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "hidden_activation": "gelu_pytorch_tanh"},
        "3072 24576 4 16 16 256 256000",
        max_position_embeddings=8192,
    ),
    "gemma2_2b8": shape(
        {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "sliding_window": 4096},
        "2304 9216 8 8 4 256 256000",
        max_position_embeddings=8192,
    ),
    "gemma3_270m": shape(
        {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": 512},
        "640 2048 18 4 1 256 262144",
        max_position_embeddings=32768,
    ),
}

_ALPACA = {"columns": {"instruction": "short", "input": "short", "output": "long"}}
_SHAREGPT = {"columns": {"conversations": "sharegpt"}}
_NO_RATIO = (r"warmup_ratio\s*=\s*[\d.]+", "warmup_steps = 1")


def model(name: str, shape_name: str) -> tuple[str, str]:
    """An edit: a model of a hub becomes the local one."""
    return re.escape(name), f"{MODELS}/{shape_name}"


def notebook(file: str, hub: str, shape_name: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A notebook of Unsloth's."""
    edits = [model(hub, shape_name), *more.pop("edits", [])]
    return {
        "file": f"unsloth-nb__{file}.ipynb",
        "shape": shape_name,
        "unsloth": True,
        "data": data,
        "edits": edits,
    } | more


_DPO_PORT = [
    (
        r"training_args = TrainingArguments\(",
        "from trl import DPOConfig\ntraining_args = DPOConfig(beta=0.1, max_length=2048,",
    ),
    (r"tokenizer=tokenizer,", "processing_class=tokenizer,"),
    (r"\n\s*beta=0\.1,(?=\n)", ""),
    (r"\n\s*max_prompt_length=\d+,", ""),
    (r"\n\s*max_length=2048,(?=\n)", ""),
]
_PROMPTER = """class Prompter:
    def __init__(self, name): pass
    def generate_prompt(self, instruction, input=None, label=None):
        return f"{instruction}\\n{input or ''}\\n{label or ''}"
"""
_LINEAR = """def find_all_linear_names(model):
    return ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
def print_trainable_parameters(model): pass
"""
_FIRE = """import sys
def Fire(function):
    words = sys.argv[1:]
    pairs = dict(zip([one.lstrip("-") for one in words[::2]], words[1::2]))
    import ast
    def value(text):
        try: return ast.literal_eval(text)
        except (ValueError, SyntaxError): return text
    return function(**{key: value(text) for key, text in pairs.items()})
"""
_JLOAD = "import json\ndef jload(path): return json.load(open(path))\n"
_LANGCHAIN = """class PromptTemplate:
    def __init__(self, input_variables, template): self.template = template
    def format(self, **words): return self.template.format(**words)
"""
_GENERATE = """def generate_prompt(row, train=False): return row["text"]
def generate_and_tokenize_prompt(row, tokenizer): return {"text": row["text"]}
"""
_MATH = """class LatexExtractionConfig: pass
def parse(*words, **more): return []
def verify(*words): return False
"""
_HANDED = """def format(text, **words): return text
"""

CASES: dict[str, dict[str, Any]] = {
    "llama31_alpaca": notebook("Llama3.1_(8B)-Alpaca", "unsloth/Llama-3.1-8B", "llama8b4", _ALPACA),
    "llama3_alpaca": notebook("Llama3_(8B)-Alpaca", "unsloth/llama-3-8b-bnb-4bit", "llama8b4", _ALPACA),
    "llama3_conversational": notebook(
        "Llama3_(8B)-Conversational", "unsloth/llama-3-8b-Instruct-bnb-4bit", "llama8b4", _SHAREGPT
    ),
    "mistral_text": notebook(
        "Mistral_(7B)-Text_Completion",
        "unsloth/mistral-7b-v0.3",
        "mistral7b6",
        {"columns": {"text": "long"}},
        edits=[_NO_RATIO],
    ),
    "mistral_conversational": notebook(
        "Mistral_v0.3_(7B)-Conversational", "unsloth/mistral-7b-instruct-v0.3-bnb-4bit", "mistral7b6", _SHAREGPT
    ),
    "nemo_alpaca": notebook("Mistral_Nemo_(12B)-Alpaca", "unsloth/Mistral-Nemo-Base-2407", "nemo3", _ALPACA),
    "qwen25_alpaca": notebook("Qwen2.5_(7B)-Alpaca", "unsloth/Qwen2.5-7B", "qwen2_7b4", _ALPACA),
    "qwen2_alpaca": notebook("Qwen2_(7B)-Alpaca", "unsloth/Qwen2-7B", "qwen2_7b4", _ALPACA),
    "qwen3_reasoning": notebook(
        "Qwen3_(14B)-Reasoning-Conversational",
        "unsloth/Qwen3-14B",
        "qwen3_14b3",
        {"columns": {"problem": "short", "generated_solution": "long", "conversations": "sharegpt"}},
    ),
    "codegemma_conversational": notebook(
        "CodeGemma_(7B)-Conversational", "unsloth/codegemma-7b-bnb-4bit", "gemma7b4", _SHAREGPT, words=2600
    ),
    "zephyr_dpo": notebook(
        "Zephyr_(7B)-DPO",
        "unsloth/zephyr-sft-bnb-4bit",
        "mistral7b6",
        {"columns": {"prompt": "short", "chosen": "chat", "rejected": "chat"}, "rows": 9000},
        edits=[_NO_RATIO],
        words=500,
    ),
    "functiongemma": notebook(
        "FunctionGemma_(270M)-Mobile-Actions",
        "unsloth/functiongemma-270m-it",
        "gemma3_270m",
        {"columns": {"messages": "chat", "tools": "null"}, "rows": 200},
        words=2600,
    ),
    "imdb_unsloth": {
        "file": "hwang2006_finetuning-gpt-oss-on-hpc__train_unsloth.py",
        "shape": "qwen2_7b4",
        "unsloth": True,
        "data": {"columns": {"text": "long"}},
        "edits": [model("Qwen/Qwen2.5-7B-Instruct", "qwen2_7b4")],
        "words": 2600,
    },
    "manim_unsloth": {
        "file": "SuienS_manim-fine-tune-v1__train_unsloth.py",
        "shape": "llama8b4",
        "unsloth": True,
        "data": {"columns": {"Reviewed Description": "short", "Code": "long", "Split": "=train,test"}, "rows": 200},
        "edits": [model("unsloth/Seed-Coder-8B-Instruct-unsloth-bnb-4bit", "llama8b4"), _NO_RATIO],
        "args": "--load_in_4bit --train_data_path data.parquet",
        "written": "data.parquet",
    },
    "sutd_unsloth": {
        "file": "keeve101_sutd-qa-chatbot__unsloth_finetune.py",
        "shape": "llama1b8",
        "unsloth": True,
        "data": {"columns": {"question": "short", "answer": "long"}},
        "edits": [model("unsloth/Llama-3.2-1B", "llama1b8")],
        "stubs": {"langchain/prompts.py": _LANGCHAIN},
    },
    "names_unsloth": {
        "file": "Dekanenko_LLM_FineTuning_4JsonCreation__fine_tuning.ipynb",
        "shape": "llama1b8",
        "unsloth": True,
        "data": {"columns": {"text": "long"}},
        "edits": [model("meta-llama/Llama-3.2-1B-Instruct", "llama1b8"), ("evaluation_strategy", "eval_strategy")],
        "stubs": {"src/utils.py": _GENERATE},
        "drop": ["dotenv"],
    },
    "emotion_unsloth": {
        "file": "jinhanzhang_EmotionBot__unsloth_finetune.py",
        "shape": "llama8b4",
        "unsloth": True,
        "data": {"columns": {"conversations": "chat"}, "rows": 300},
        "edits": [
            (r"default='unsloth/Meta-Llama-3\.1-8B-bnb-4bit'", f"default='{MODELS}/llama8b4'"),
            (r"import evaluate\n", ""),
            (r"test_ds\[test_idx\]\[\"conversations\"\]:\n        print", "[]:\n        print"),
        ],
    },
    "trl_sft": {
        "file": "huggingface_trl__trl_scripts_sft.py",
        "shape": "qwen2_05b",
        "data": {"columns": {"messages": "chat"}},
        "edits": [],
        "args": f"--model_name_or_path {MODELS}/qwen2_05b --dataset_name trl-lib/Capybara --learning_rate 2.0e-5 "
        "--num_train_epochs 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --eval_strategy steps "
        "--eval_steps 100 --output_dir out",
    },
    "codegemma_sql": {
        "file": "google-gemini_gemma-cookbook__CodeGemma_CodeGemma_1Finetune_with_SQL.ipynb",
        "shape": "gemma7b4",
        "data": {"columns": {"question": "short", "query": "long"}},
        "edits": [model("google/codegemma-7b-it", "gemma7b4"), (r"\n\s*logging_dir=\"./logs\",", "")],
        "stubs": {"sqlparse.py": _HANDED},
        "drop": ["model.generate("],
    },
    "gemma2_dpo": {
        "file": "google-gemini_gemma-cookbook__Gemma_Gemma_2Aligning_DPO.ipynb",
        "shape": "gemma2_2b8",
        "data": {
            "columns": {
                "chosen": "chat",
                "rejected": "chat",
                "source": "=GOAT",
                "rating_chosen": "=5",
                "rating_rejected": "=3",
            }
        },
        "edits": [model("google/gemma-2-2b-it", "gemma2_2b8"), *_DPO_PORT],
        "drop": ["google.colab", "login("],
        "words": 1800,
    },
    "qwen2_grpo": {
        "file": "huggingface_cookbook__notebooks_en_fine_tuning_llm_grpo_trl.ipynb",
        "shape": "qwen2_05b",
        "data": {"columns": {"messages": "chat", "problem": "same", "solution": "short"}, "rows": 400},
        "edits": [model("Qwen/Qwen2-0.5B-Instruct", "qwen2_05b")],
        # tokens of every prompt: nothing cuts those, so no source tells how wide batches are
        "lengths": 273,
        "stubs": {"math_verify.py": _MATH},
        "drop": ["notebook_login"],
    },
    "alora": {
        "file": "huggingface_peft__examples_alora_finetuning_alora_finetuning.py",
        "shape": "mistral7b6",
        "data": {"columns": {"input": "short", "output": "long"}},
        "edits": [
            model("mistralai/Mistral-7B-Instruct-v0.3", "mistral7b6"),
            (r"\n\s*logging_dir=\"./logs\",", ""),
        ],
    },
    "alpaca_full": {
        "file": "tatsu-lab_stanford_alpaca__train.py",
        "shape": "llama1b8",
        "data": _ALPACA,
        "edits": [(r"tokenizer=tokenizer, args=", "processing_class=tokenizer, args=")],
        "args": f"--model_name_or_path {MODELS}/llama1b8 --data_path data.json --bf16 True --output_dir out "
        "--num_train_epochs 3 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --learning_rate 2e-5",
        "stubs": {"utils.py": _JLOAD},
        "written": "data.json",
    },
    "koalpaca_qlora": {
        "file": "yeongsang2_my_alpaca__finetune_qlora.py",
        "shape": "llama8b4",
        "data": _ALPACA,
        "edits": [(r"evaluation_strategy=", "eval_strategy="), (r"\n\s*group_by_length=group_by_length,", "")],
        "args": f"--base_model {MODELS}/llama8b4 --cutoff_len 1024 --micro_batch_size 4 --batch_size 8 "
        """--lora_target_modules '["q_proj","v_proj"]'""",
        "stubs": {"utils/prompter.py": _PROMPTER, "fire.py": _FIRE},
        "written": "data.json",
    },
    "llama2_dpo": {
        "file": "mzbac_llama2-fine-tune__dpo_trainer.py",
        "shape": "llama8b4",
        "data": {"columns": {"input": "short", "chosen": "long", "rejected": "long"}},
        "edits": [model("merged_peft/final_merged_checkpoint", "llama8b4"), *_DPO_PORT, _NO_RATIO],
        "stubs": {"utils.py": _LINEAR},
        "set": ["lora_target_modules=[q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj]"],
        "words": 1800,
    },
}


def adapted(text: str, case: dict[str, Any]) -> str:
    """The source with a case's edits; each must find its place."""
    for pattern, new in case["edits"]:
        text, count = re.subn(pattern, lambda _, new=new: new, text)
        if not count:
            raise SystemExit(f"{case['file']}: nothing matches {pattern}")
    return text


def adapted_notebook(data: str, case: dict[str, Any]) -> str:
    """Code cells up to the one that trains, without those that install or that a case drops."""
    cells = []
    for cell in json.loads(data)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "pip install" in source or "memory stats" in source:
            continue
        if any(mark in source for mark in case.get("drop", ())):
            continue
        cells.append(source)
        if re.search(r"^\s*(\w+ = )?\w*trainer\w*\.train\(", source, re.MULTILINE):
            break
    marked = adapted("\n\0\n".join(cells), case).split("\n\0\n")
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": one} for one in marked
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1)


def predicted(path: Path, case: dict[str, Any]) -> dict[str, Any]:
    """What `vramwise predict` says of an adapted file, on the card that it will run on."""
    words = ["predict", str(path), "--gpu", "h200", "--torch", "2.13.0", "--offline", "--format", "json"]
    for name, version in VERSIONS.items():
        words += ["--with", f"{name}=={version}"]
    for one in case.get("set", ()):
        words += ["--set", one]
    if case.get("args"):
        words += ["--args", case["args"]]
    if "lengths" in case:
        told = path.with_suffix(".lengths")
        told.write_text(f"{case['lengths']}\n" * 400)
        words += ["--lengths", str(told)]
    done = subprocess.run([sys.executable, "-m", "vramwise", *words], capture_output=True, text=True, check=False)
    try:
        return {"command": shlex.join(words), "predicted": json.loads(done.stdout)}
    except ValueError:
        return {"command": shlex.join(words), "error": (done.stderr or done.stdout)[-2000:]}


def main() -> None:
    """Write adapted files, cases and predictions."""
    corpus, out = Path(sys.argv[1]), Path(sys.argv[2])
    (out / "adapted").mkdir(parents=True, exist_ok=True)
    for name, config in SHAPES.items():
        folder = Path(MODELS) / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.json").exists():
            (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    with (out / "predictions.jsonl").open("w") as file:
        for name, case in CASES.items():
            source = corpus / case["file"]
            path = out / "adapted" / f"{name}{source.suffix}"
            text = source.read_text()
            path.write_text(adapted_notebook(text, case) if source.suffix == ".ipynb" else adapted(text, case))
            row = {"name": name, **predicted(path, case)}
            file.write(json.dumps(row) + "\n")
            print(name, row.get("error") or "predicted", flush=True)
    (out / "cases.json").write_text(json.dumps({"models": MODELS, "shapes": SHAPES, "cases": CASES}, indent=1))


if __name__ == "__main__":
    main()
