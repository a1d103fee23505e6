"""Failures that a person tells instead of pasting: sentences, titles, quotations, typos, Chinese; set-ups in prose."""

import io

import pytest

import vramwise
from vramwise.units import GIB

# What is pasted, then the kind of failure, its stage, and its step.
TOLD = [
    ("crashes with exit code -7 when I raise num_workers", "host-bus-error", "data", None),
    ("[Bug] OOM when saving the merged model with save_pretrained_merged", "cuda-oom", "merge", None),
    ("Full fine-tuning of a 7B, batch size 1: OOM in the first backward.", "cuda-oom", "backward", None),
    ("训练到300步左右爆显存", "cuda-oom", "", 300),
    ("评估的时候显存不足，训练正常", "cuda-oom", "eval", None),
    ("用vllm推理阶段OOM，8卡H20", "cuda-oom", "generate", None),
    ("The process gets killed while loading the 70B model with 8 ranks.", "host-killed", "load", None),
    ("只有 packing 的时候会内存 OOM", "host-told", "data", None),
    ("the kernel died while tokenizing the dataset, ram usage goes to 100%", "host-told", "data", None),
    ("GPU memory grows a little every step until it OOMs around step 1200.", "cuda-oom", "", 1200),
    ("I get OOM only when resuming from a checkpoint. From scratch it works fine.", "cuda-oom", "resume", None),
    ("> RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 8.00 GiB total capacity)", "cuda-oom", "", None),
    ("```\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB\n```", "cuda-oom", "", None),
    ('The error is "CUDA out of memory. Tried to allocate 448.00 MiB" after about 50 steps.', "cuda-oom", "", 50),
    ("torch.cuda.OutofMemoryError: CUDA out of memroy. Tried to alocate 2.0 GB", "cuda-oom", "", None),
    ("FAILED tests/test_x.py::test_y - torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda-oom", "", None),
    ("2024-05-01 12:00:01,123 - ERROR - trainer.py:88 - CUDA out of memory.", "cuda-oom", "", None),
    ("\r\n[rank0]: OOM\r\n[rank1]: OOM\r\n", "cuda-oom", "", None),
    ("OutOfMemoryErrorOutOfMemoryError.: : OutOfMemoryErrorCUDA out of memory. Tried to allocate 2.11 GiB (GPU 6;", "cuda-oom", "", None),
    ("torch.OutOfMemoryError when wake_up is called after the first rollout", "cuda-oom", "vllm-wake", None),
    ("NCCL timeout during training: ALLREDUCE timed out after 1800 seconds", "nccl-timeout", "", None),
]  # fmt: skip


def told(text):
    return vramwise.diagnose(io.BytesIO(text.encode()))


@pytest.mark.parametrize(("text", "kind", "stage", "step"), TOLD)
def test_a_sentence_reports_a_failure(text, kind, stage, step):
    diagnosis = told(text)
    assert diagnosis.failed
    assert (diagnosis.symptom.kind, diagnosis.symptom.stage, diagnosis.symptom.step) == (kind, stage, step)


@pytest.mark.parametrize(
    "text",
    [
        "how much vram do I need to fine-tune llama 3 8b with qlora?",
        "Everything is fine, loss goes down, no OOM.",
        "If you run out of memory, lower the batch size.",
        "Loaded 12 zoom levels for room 7.",
        "Enable gradient checkpointing to avoid OOM.",
        "{'loss': 1.2, 'epoch': 0.1}\n{'train_runtime': 12.1, 'epoch': 1.0}\nNote: could have run out of memory.",
    ],
)
def test_advice_questions_and_good_runs_report_none(text):
    assert not told(text).failed


def test_a_figure_that_was_typed_is_read():
    memory = told("CUDA out of memroy: tried to alocate 2.0 GB (24GB total, 22GB already alocated)").symptom.memory
    assert (memory.requested_bytes, memory.total_bytes, memory.allocated_bytes) == (2 * GIB, 24 * GIB, 22 * GIB)


def test_a_message_that_was_cut_keeps_its_figures():
    memory = told(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.83 GiB. GPU 0 has a total capacity of 44.55 "
        "GiB of which 2.25 GiB i"
    ).symptom.memory
    assert memory.free_bytes == int(2.25 * GIB)


def test_what_else_a_person_states_is_kept_with_its_line():
    log = told(
        "OOM on my 4090.\nThe memory usage slowly increases with every step.\nI tried gradient checkpointing and "
        "Liger, still OOM.\nWith batch size 1 it works.\nRAM fills up to 500 GB."
    ).log
    stated = log.stated
    assert stated.grows_steadily.line == 2
    assert set(stated.tried) == {"checkpoint-activations", "fuse-loss"}
    assert stated.works_with_smaller_batch.line == 4
    assert stated.host_bytes == 500 * GIB
    assert log.setup.gpu == "4090"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "full fine-tuning of Qwen2.5-7B with ZeRO-3 offload on 8xA100 80G, sequence length 32k, batch size 1",
            {"model": "Qwen2.5-7B", "method": "full", "zero_stage": 3, "offload": True, "cards": 8, "gpu": "A100-80gb"}
            | {"sequence_len": 32768, "micro_batch": 1},
        ),
        ("QLoRA of meta-llama/Llama-3.1-70B-Instruct, FSDP, two cards", {"method": "qlora", "fsdp": True}),
        (
            "--model_name_or_path Qwen/Qwen3-8B --finetuning_type lora --per_device_train_batch_size 2 --cutoff_len 4096",
            {"model": "Qwen/Qwen3-8B", "method": "lora", "micro_batch": 2, "sequence_len": 4096},
        ),
        ("单卡4090微调Qwen2.5-7B，全参数", {"gpu": "4090", "model": "Qwen2.5-7B", "method": "full"}),
    ],
)
def test_a_set_up_is_read_from_prose_and_commands(text, fields):
    setup = told(text).log.setup
    assert {name: getattr(setup, name) for name in fields} == fields


def test_a_described_run_is_simulated_and_that_is_said():
    diagnosis = told("OOM: full fine-tuning of Qwen2.5-7B on one A100 40G, sequence length 2048, batch size 1")
    assert "the run as described needs more memory than the card has" in diagnosis.sentence
    assert diagnosis.ghost[0].startswith("simulated from the description (Qwen2.5-7B, full, ")


def test_messages_outrank_the_description():
    diagnosis = told(
        "Full fine-tuning of Qwen2.5-7B on one A100 80G, sequence length 2048\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.25 GiB "
        "of which 60.10 GiB is free. Of the allocated memory 8.51 GiB is allocated by PyTorch, and 856.16 MiB is "
        "reserved by PyTorch but unallocated."
    )
    assert diagnosis.causes[0].id != "capacity"


def test_a_config_that_cannot_be_used_is_a_note(vramwise, tmp_path):
    (tmp_path / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (tmp_path / "run.sh").write_text("swift sft --model_type qwen2-7b-instruct --max_length 1024 --batch_size 1\n")
    result = vramwise("diagnose", tmp_path / "train.log", "--config", tmp_path / "run.sh")
    assert result.exit_code == 1
    assert "--config was not simulated: " in result.output
    (tmp_path / "axolotl.yml").write_text(
        "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\nsequence_len: 512\n"
    )
    (tmp_path / "other.log").write_text(
        '  File "/a/src/llamafactory/train/tuner.py", line 3, in run_exp\ntorch.OutOfMemoryError: CUDA out of memory.\n'
    )
    result = vramwise("diagnose", tmp_path / "other.log", "--config", tmp_path / "axolotl.yml")
    assert result.exit_code == 1
    assert "it is a config of Axolotl, and the log is from llamafactory" in result.output


def test_logits_of_another_vocabulary_do_not_match_the_config(tmp_path):
    """8 × 2048 tokens of Llama 3's 128,256 words are not Llama 2's 32,000, whatever the simulation says."""
    config = tmp_path / "config.yml"
    config.write_text(
        "base_model: meta-llama/Llama-2-7b-hf\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nsequence_len: 2048\n"
        "micro_batch_size: 8\ndatasets: [{path: d, type: alpaca}]\nbf16: true\npad_to_sequence_len: true\n"
    )
    log = (
        '  File "/x/transformers/loss/loss_utils.py", line 36, in ForCausalLMLoss\n    logits = logits.float()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 0 has a total capacity of 23.64 GiB "
        "of which 4.12 GiB is free. Of the allocated memory 18.70 GiB is allocated by PyTorch, and 312.44 MiB is reserved "
        "by PyTorch but unallocated.\n"
    )
    diagnosis = vramwise.diagnose(io.BytesIO(log.encode()), config=str(config))
    assert diagnosis.causes[0].id == "logits"
    assert any(
        note.startswith("log and config do not match: 7.8 GiB = 8 × 2048 tokens × 128256 vocabulary × 4 bytes")
        for note in diagnosis.notes
    )
    assert not any("confirmed by simulation" in said for cause in diagnosis.causes for said in cause.evidence)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "4张A100 80G，序列长度8192，批大小为2，Qwen3-8B全参微调，爆显存",
            {"cards": 4, "sequence_len": 8192, "micro_batch": 2},
        ),
        (
            "QLoRA of Mistral 7B works with seq len 512, but not with 2048: OOM",
            {"sequence_len": None, "method": "qlora"},
        ),
        ("deepspeed: examples/deepspeed/ds_z3_offload_config.json", {"zero_stage": 3, "offload": True}),
    ],
)
def test_sizes_in_chinese_and_what_works_is_not_what_failed(text, fields):
    setup = told(text).log.setup
    assert {name: getattr(setup, name) for name in fields} == fields


def test_what_a_program_says_of_host_memory_is_no_failure():
    assert not told("Unsloth: Will use up to 24.38 out of 50.99 RAM for saving.\nUnsloth: Saving model...").failed


def first_remedies(text, count=2):
    return " | ".join(remedy.title for remedy in told(text).causes[0].remedies[:count])


@pytest.mark.parametrize(
    ("text", "says", "first", "never"),
    [
        ("LoRA fine-tuning of a 34B model in bf16 with torchrun on 2 cards, RTX 3090: OOM", "holds a whole copy", "ZeRO-3", "micro"),
        ("LoRA of a 34B model on one 3090, bf16: out of memory, even with a batch size of 1", "before any activation", "4 bits", "checkpointing"),
        ("QLoRA (load_in_4bit=True) of a 70B model, 2 cards, each a 4090. CUDA out of memory.", "whole copy", "FSDP with QLoRA", "in 4 bits"),
        ("OOM: QLoRA of a 34B model, load_in_4bit=True, on one 3090\ntrainable params: 500,000,000 || all params: 17,000,000,000 || trainable%: 2.9", "the adapter is large", "lower rank", "Shard"),
        ("My Mac with an M3 runs out of memory in mlx_lm.lora", "the Mac's memory", "max_seq_length", "bits: QLoRA"),
        ("LoRA of a 34B model, FSDP on 4 cards, A100 80G: OOM", "memory was used up", "Halve the micro-batch", "Shard"),
    ],
)  # fmt: skip
def test_remedies_change_what_fills_the_card(text, says, first, never):
    diagnosis = told(text)
    offered = " | ".join(remedy.title for remedy in diagnosis.causes[0].remedies)
    assert says in diagnosis.sentence
    assert first in first_remedies(text)
    assert never not in offered


@pytest.mark.parametrize(
    ("text", "cause", "guess"),
    [
        ("OOM on my A100.\nVRAM usage keeps increasing during training until it crashes.", "long-tail", False),
        ("Qwen2.5-VL-7B: GPU memory grows a little every step until OOM", "long-tail", False),
        ("GPU memory grows by 20 MB each step with constant shapes, then OOM.", "leak", False),
    ],
)
def test_told_growth_is_a_leak_only_with_support(text, cause, guess):
    first = told(text).causes[0]
    assert (first.id, first.is_guess) == (cause, guess)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("CUDA OOM when saving with FSDP: trying to allocate 2 EB", "absurd-size"),
        ("OOM while saving. There are 3 other processes on GPU 0, 500 MB each.", "rank-contexts"),
        ("I load in 8 bit and get out of memory at batch size 64", "capacity"),
        ("NCCL OOM in save_checkpoint", "save-gather"),
    ],
)
def test_a_place_is_a_cause_only_if_said_as_a_moment(text, cause):
    assert told(text).causes[0].id == cause


def test_ram_that_fills_up_in_full_training_is_the_offloaded_state():
    diagnosis = told("Full fine-tuning of a 30B model: the system RAM goes up to 200 GB, then it crashes.")
    assert diagnosis.causes[0].id == "host-memory"
    assert "the offloaded optimizer state" in " ".join(diagnosis.causes[0].evidence)
    offered = " | ".join(remedy.title for remedy in diagnosis.causes[0].remedies)
    assert offered.startswith("Offload less")
    assert "data loader" not in offered
