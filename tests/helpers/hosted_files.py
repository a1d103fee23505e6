"""Files of trainers that train by their own engine."""

COMMON = {"model_name_or_path": "model", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
TRL = {**COMMON, "dataset_name": "data", "max_length": 64, "packing": False, "bf16": False}
LLAMAFACTORY = {
    **COMMON,
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset": "toy",
    "template": "default",
    "cutoff_len": 64,
}
FILES = {"trl": TRL, "llamafactory": LLAMAFACTORY}
