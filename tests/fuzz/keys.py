"""Every key of every trainer that the package knows: at top level, in blocks, in every known version."""

from dataclasses import dataclass
from functools import cache

# A config of each trainer that is recognised, predicts in milliseconds and fits every card.
_TRAINING = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 1,
    "num_train_epochs": 1,
    "learning_rate": 0.0001,
    "optim": "adamw_torch",
    "logging_steps": 10,
    "output_dir": "out",
}
BASES = {
    "axolotl": {
        "base_model": "model",
        "sequence_len": 256,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "optimizer": "adamw_torch",
        "learning_rate": 0.0001,
        "datasets": [{"path": "data.jsonl", "type": "alpaca"}],
    },
    "trl": {"model_name_or_path": "model", "dataset_name": "x/y", "dtype": "bfloat16", "max_length": 256, **_TRAINING},
    "llamafactory": {
        "model_name_or_path": "model",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "dataset": "identity",
        "template": "llama3",
        "cutoff_len": 256,
        **_TRAINING,
    },
    "hf-trainer": {"model_name_or_path": "model", "lr_scheduler_type": "cosine", "bf16": True, **_TRAINING},
    # the file of its command, which has sections
    "unsloth": {
        "model": "model",
        "data": {"dataset": "x/y"},
        "training": {"training_type": "lora", "max_seq_length": 256, "batch_size": 2, "max_steps": 10},
        "lora": {"lora_r": 8},
    },
}
# Arguments of Unsloth's calls, as scripts have them: in a file they are read where its trainer is named.
_UNSLOTH_ARGUMENTS = {"model_name_or_path": "model", "max_seq_length": 256, "load_in_4bit": True, **_TRAINING}
# What makes a trainer read a block or a group of keys.
_COMPANIONS = {
    "fsdp_config": {"fsdp": ["full_shard", "auto_wrap"]},
    "trl": {"rl": "grpo"},
    "vllm": {"rl": "grpo"},
    "lora": {"adapter": "lora", "lora_r": 8, "lora_target_linear": True},
    "peft": {"adapter": "lora", "lora_r": 8, "lora_target_linear": True},
    "test_datasets": {"test_datasets": [{"path": "data.jsonl", "type": "alpaca", "split": "train"}]},
}
# Keys of DeepSpeed's and accelerate's mappings that decide memory, written in the config itself.
_INLINE = (
    *(f"deepspeed.zero_optimization.{name}" for name in ("stage", "cpu_offload", "offload_param", "offload_optimizer")),
    *(f"deepspeed.zero_optimization.{name}" for name in ("overlap_comm", "contiguous_gradients", "sub_group_size")),
    *(f"deepspeed.zero_optimization.{name}" for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size")),
    *(
        f"deepspeed.zero_optimization.{name}"
        for name in ("stage3_param_persistence_threshold", "stage3_max_live_parameters")
    ),
    *("deepspeed.zero_optimization.offload_param.device", "deepspeed.zero_optimization.offload_optimizer.device"),
    *("deepspeed.optimizer.type", "deepspeed.bf16.enabled", "deepspeed.compile.deepcompile", "deepspeed.data_types"),
    *("deepspeed.train_micro_batch_size_per_gpu", "deepspeed.gradient_accumulation_steps"),
    *("accelerator_config.gradient_accumulation_kwargs.sync_each_batch", "gradient_checkpointing_kwargs.use_reentrant"),
    *("model_init_kwargs.torch_dtype", "model_init_kwargs.attn_implementation", "env.PYTORCH_ALLOC_CONF"),
    *("fsdp_config.offload_params", "fsdp_config.cpu_offload", "fsdp_config.activation_checkpointing"),
)


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of one trainer: its dotted path, and its type and choices in each version that has it."""

    trainer: str
    path: str
    # version → the trainer's KeyFact; empty for keys that it reads without listing them
    facts: tuple

    @property
    def parts(self):
        """The names on the way: `datasets[]` is the first item of a list."""
        return self.path.split(".")

    @property
    def base(self):
        """The config that the key is put into."""
        return BASES[self.trainer] if self.recognised else _UNSLOTH_ARGUMENTS

    @property
    def recognised(self):
        """Whether the trainer of that config is recognised by its keys."""
        return self.trainer != "unsloth" or self.parts[0] in BASES["unsloth"]

    def fact(self, turn):
        """(version, fact) of one of the versions that have the key, each in its turn; (None, None) without any."""
        return self.facts[turn % len(self.facts)] if self.facts else (None, None)


@cache
def all_keys():
    """Every key of every trainer, sorted; the embedded engine reads Axolotl's files and has no keys of its own."""
    from vramwise.trainers.registry import trainer_named
    from vramwise.trainers.vocabulary import key_facts_of

    found = []
    for name in BASES:
        trainer = trainer_named(name)
        facts = {}
        for version in trainer.releases():
            for path, fact in key_facts_of(trainer, version).items():
                facts.setdefault(path, []).append((version, fact))
        for path in _unlisted(name, facts):
            facts.setdefault(path, [])
        found += [Key(trainer=name, path=path, facts=tuple(facts[path])) for path in sorted(facts)]
    return tuple(found)


def _unlisted(trainer, facts):
    """Keys that are read although the trainer's list has none of that name."""
    from vramwise.opening.stacks import make_stack
    from vramwise.trainers.registry import trainer_named
    from vramwise.trainers.trl.keys import ALL_PROJECT_KEYS, COMMAND_KEYS, GONE, launcher_keys
    from vramwise.trainers.unsloth.keys import CLI_KEYS
    from vramwise.trainers.vocabulary import key_facts_of

    tops = {path.split(".")[0] for path in facts}
    if trainer == "unsloth":
        yield from (".".join(path) for path in CLI_KEYS)
    yield from (path for path in _INLINE if path.split(".")[0] in tops)
    if trainer == "trl":
        trl = trainer_named("trl")
        yield from (*COMMAND_KEYS, *ALL_PROJECT_KEYS, *GONE, "env.PYTORCH_ALLOC_CONF")
        yield from launcher_keys(make_stack(trl.package, trl.releases()))
    if trainer != "axolotl" and "fsdp_config" in tops:
        axolotl = trainer_named("axolotl")
        newest = list(axolotl.releases())[-1]
        yield from (path for path in key_facts_of(axolotl, newest) if path.startswith("fsdp_config."))


def companions(key, fact):
    """What is written beside a key so that its trainer reads it."""
    top = key.parts[0].removesuffix("[]")
    beside = dict(_COMPANIONS.get(top) or _COMPANIONS.get(top.split("_")[0], {})) if key.trainer == "axolotl" else {}
    if key.trainer != "axolotl" and top == "fsdp_config":
        beside = {"fsdp": "full_shard auto_wrap"}
    if fact is not None and fact.needs and top != "plugins":
        beside["plugins"] = [fact.needs]
    return beside
