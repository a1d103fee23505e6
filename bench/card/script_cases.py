"""The first draw of scripts for a card: 25 of the corpus. `prepare_scripts.py` says what becomes of them."""

from __future__ import annotations

from typing import Any

from script_parts import ALPACA, DPO_PORT, MODELS, NO_RATIO, SHAREGPT, model, notebook

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
    "llama31_alpaca": notebook("Llama3.1_(8B)-Alpaca", "unsloth/Llama-3.1-8B", "llama8b4", ALPACA),
    "llama3_alpaca": notebook("Llama3_(8B)-Alpaca", "unsloth/llama-3-8b-bnb-4bit", "llama8b4", ALPACA),
    "llama3_conversational": notebook(
        "Llama3_(8B)-Conversational", "unsloth/llama-3-8b-Instruct-bnb-4bit", "llama8b4", SHAREGPT
    ),
    "mistral_text": notebook(
        "Mistral_(7B)-Text_Completion",
        "unsloth/mistral-7b-v0.3",
        "mistral7b6",
        {"columns": {"text": "long"}},
        edits=[NO_RATIO],
    ),
    "mistral_conversational": notebook(
        "Mistral_v0.3_(7B)-Conversational", "unsloth/mistral-7b-instruct-v0.3-bnb-4bit", "mistral7b6", SHAREGPT
    ),
    "nemo_alpaca": notebook("Mistral_Nemo_(12B)-Alpaca", "unsloth/Mistral-Nemo-Base-2407", "nemo3", ALPACA),
    "qwen25_alpaca": notebook("Qwen2.5_(7B)-Alpaca", "unsloth/Qwen2.5-7B", "qwen2_7b4", ALPACA),
    "qwen2_alpaca": notebook("Qwen2_(7B)-Alpaca", "unsloth/Qwen2-7B", "qwen2_7b4", ALPACA),
    "qwen3_reasoning": notebook(
        "Qwen3_(14B)-Reasoning-Conversational",
        "unsloth/Qwen3-14B",
        "qwen3_14b3",
        {"columns": {"problem": "short", "generated_solution": "long", "conversations": "sharegpt"}},
    ),
    "codegemma_conversational": notebook(
        "CodeGemma_(7B)-Conversational", "unsloth/codegemma-7b-bnb-4bit", "gemma7b4", SHAREGPT, words=2600
    ),
    "zephyr_dpo": notebook(
        "Zephyr_(7B)-DPO",
        "unsloth/zephyr-sft-bnb-4bit",
        "mistral7b6",
        {"columns": {"prompt": "short", "chosen": "chat", "rejected": "chat"}, "rows": 9000},
        edits=[NO_RATIO],
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
        "edits": [model("unsloth/Seed-Coder-8B-Instruct-unsloth-bnb-4bit", "llama8b4"), NO_RATIO],
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
        "edits": [model("google/gemma-2-2b-it", "gemma2_2b8"), *DPO_PORT],
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
        "lengths": 2048,
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
        "data": ALPACA,
        "edits": [(r"tokenizer=tokenizer, args=", "processing_class=tokenizer, args=")],
        "args": f"--model_name_or_path {MODELS}/llama1b8 --data_path data.json --bf16 True --output_dir out "
        "--num_train_epochs 3 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --learning_rate 2e-5",
        "stubs": {"utils.py": _JLOAD},
        "written": "data.json",
    },
    "koalpaca_qlora": {
        "file": "yeongsang2_my_alpaca__finetune_qlora.py",
        "shape": "llama8b4",
        "data": ALPACA,
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
        "edits": [model("merged_peft/final_merged_checkpoint", "llama8b4"), *DPO_PORT, NO_RATIO],
        "stubs": {"utils.py": _LINEAR},
        "set": ["lora_target_modules=[q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj]"],
        "words": 1800,
    },
}
