"""The stage of a failure: from calls of the libraries, from the words of anybody's functions, from cut tracebacks."""

import io
import re
from pathlib import Path

import pytest

import vramwise
from vramwise.diagnosis.evidence import StageName
from vramwise.diagnosis.read import phases

SITE = "/opt/venv/lib/python3.11/site-packages"
TRAIN = (f"{SITE}/transformers/trainer.py", "_inner_training_loop", "")
STEP = (f"{SITE}/transformers/trainer.py", "training_step", "")
CALL = (f"{SITE}/torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)")
ENGINE = (f"{SITE}/torch/autograd/graph.py", "_engine_run_backward", "return Variable._execution_engine.run_backward(")
DIES = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB."

# What innermost calls each stage has, outermost first; the last row of each is the end of the traceback.
CASES = {
    "load": [[("app.py", "load_model", ""), (f"{SITE}/transformers/core_model_loading.py", "_materialize_copy", "")]],
    "load, bitsandbytes": [[(f"{SITE}/torch/nn/modules/module.py", "convert", ""), (f"{SITE}/bitsandbytes/nn/modules.py", "to", "")]],
    "to-device": [
        [(f"{SITE}/trl/trainer/sft_trainer.py", "__init__", ""), (f"{SITE}/torch/nn/modules/module.py", "convert", "return t.to(")],
        [("sft.py", "main", "model = model.to(device)"), (f"{SITE}/torch/nn/modules/module.py", "_apply", "")],
    ],
    "reference": [[(f"{SITE}/trl/models/utils.py", "create_reference_model", ""), ("/usr/lib/python3.11/copy.py", "deepcopy", "")]],
    "ddp-init": [[TRAIN, (f"{SITE}/accelerate/accelerator.py", "prepare_model", ""), (f"{SITE}/torch/nn/parallel/distributed.py", "__init__", "")]],
    "fsdp-init": [[(f"{SITE}/torch/distributed/fsdp/fully_sharded_data_parallel.py", "__init__", ""), (f"{SITE}/torch/distributed/fsdp/_flat_param.py", "flatten_tensors", "")]],
    "zero-init": [[(f"{SITE}/deepspeed/__init__.py", "initialize", ""), (f"{SITE}/deepspeed/runtime/engine.py", "_configure_distributed_model", "self.module.to(self.device)"), (f"{SITE}/torch/nn/modules/module.py", "convert", "")]],
    "optimizer-init": [[(f"{SITE}/deepspeed/runtime/zero/stage3.py", "_setup_for_real_optimizer", ""), (f"{SITE}/deepspeed/runtime/zero/stage3.py", "initialize_optimizer_states", ""), (f"{SITE}/torch/optim/adamw.py", "step", "")]],
    "resume": [[TRAIN, (f"{SITE}/transformers/trainer.py", "_load_optimizer_and_scheduler", ""), (f"{SITE}/torch/optim/optimizer.py", "load_state_dict", "")]],
    "embedding": [[STEP, CALL, (f"{SITE}/transformers/models/qwen2/modeling_qwen2.py", "forward", "inputs_embeds = self.embed_tokens(input_ids)"), CALL, (f"{SITE}/torch/nn/functional.py", "embedding", "")]],
    "attention": [[STEP, CALL, (f"{SITE}/transformers/integrations/sdpa_attention.py", "sdpa_attention_forward", "attn_output = torch.nn.functional.scaled_dot_product_attention(")]],
    "mlp": [[STEP, CALL, (f"{SITE}/transformers/models/llama/modeling_llama.py", "forward", "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))"), CALL, (f"{SITE}/torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)")]],
    "vision": [[STEP, CALL, (f"{SITE}/transformers/models/qwen2_vl/modeling_qwen2_vl.py", "forward", "image_embeds = self.visual(pixel_values, grid_thw=image_grid_thw)"), CALL, (f"{SITE}/transformers/models/qwen2_vl/modeling_qwen2_vl.py", "forward", "attn_output = F.scaled_dot_product_attention(q, k, v, attention_mask)")]],
    "loss": [[STEP, CALL, (f"{SITE}/transformers/loss/loss_utils.py", "fixed_cross_entropy", "")], [STEP, (f"{SITE}/openrlhf/models/loss.py", "forward", "logits = logits.float()")]],
    "log-probs": [[("trainer.py", "_prepare_inputs", ""), (f"{SITE}/trl/trainer/utils.py", "selective_log_softmax", "")], [("my_ppo.py", "compute_token_logprobs", "x = y")]],
    "unshard": [[STEP, CALL, (f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", "wait_for_unshard", "")], [STEP, CALL, (f"{SITE}/deepspeed/runtime/zero/partitioned_param_coordinator.py", "fetch_sub_module", "")]],
    "offload": [[STEP, CALL, (f"{SITE}/unsloth_zoo/gradient_checkpointing.py", "forward", 'saved = hidden_states.to("cpu", non_blocking = True)')]],
    "recompute": [[STEP, (f"{SITE}/accelerate/accelerator.py", "backward", ""), ENGINE, (f"{SITE}/torch/utils/checkpoint.py", "unpack_hook", ""), CALL]],
    "backward": [[STEP, (f"{SITE}/torch/_tensor.py", "backward", ""), ENGINE]],
    "clip": [[TRAIN, (f"{SITE}/torch/nn/utils/clip_grad.py", "clip_grad_norm_", "")]],
    "optimizer": [[TRAIN, (f"{SITE}/torch/optim/adam.py", "_init_group", "state['exp_avg'] = torch.zeros_like(p)")], [("loop.py", "my_step", "denom = (exp_avg_sq.sqrt() / c).add_(eps)")]],
    "eval": [[(f"{SITE}/transformers/trainer.py", "evaluate", ""), (f"{SITE}/transformers/trainer.py", "prediction_step", ""), CALL, (f"{SITE}/torch/nn/functional.py", "cross_entropy", "")]],
    "eval-gather": [[(f"{SITE}/transformers/trainer.py", "evaluation_loop", ""), (f"{SITE}/accelerate/utils/operations.py", "pad_across_processes", "")], [(f"{SITE}/transformers/trainer_pt_utils.py", "nested_concat", "")]],
    "generate": [[(f"{SITE}/transformers/generation/utils.py", "_sample", ""), CALL], [("ppo.py", "rollout_batch", "x = f(y)")], [(f"{SITE}/vllm/v1/sample/ops/topk_topp_sampler.py", "apply_top_k_top_p", "logits.sort(dim=-1)")]],
    "save": [[(f"{SITE}/transformers/trainer.py", "_save_checkpoint", ""), (f"{SITE}/torch/nn/modules/module.py", "state_dict", "")]],
    "save-gather": [[(f"{SITE}/bitsandbytes/nn/modules.py", "_save_to_state_dict", ""), (f"{SITE}/bitsandbytes/autograd/_functions.py", "undo_layout", "")], [(f"{SITE}/deepspeed/runtime/engine.py", "_zero3_consolidated_16bit_state_dict", "")]],
    "merge": [[(f"{SITE}/unsloth/save.py", "unsloth_generic_save_pretrained_merged", ""), (f"{SITE}/unsloth/save.py", "_merge_lora", "")]],
    "weight-sync": [[(f"{SITE}/trl/trainer/grpo_trainer.py", "_move_model_to_vllm", ""), (f"{SITE}/peft/tuners/tuners_utils.py", "merge_adapter", "")]],
    "vllm-start": [[(f"{SITE}/vllm/engine/llm_engine.py", "from_engine_args", ""), (f"{SITE}/vllm/worker/worker.py", "load_model", "")]],
    "vllm-profile": [[(f"{SITE}/vllm/v1/worker/gpu_worker.py", "determine_available_memory", ""), (f"{SITE}/vllm/v1/worker/gpu_model_runner.py", "profile_run", "")]],
    "vllm-cache": [[(f"{SITE}/vllm/v1/worker/gpu_model_runner.py", "initialize_kv_cache", "")]],
    "vllm-sampler": [[(f"{SITE}/vllm/v1/worker/gpu_model_runner.py", "_dummy_sampler_run", "")]],
    "vllm-wake": [[(f"{SITE}/vllm/device_allocator/cumem.py", "wake_up", ""), (f"{SITE}/vllm/device_allocator/cumem.py", "create_and_map", "")]],
    "pin-memory": [[(f"{SITE}/torch/utils/data/_utils/pin_memory.py", "_pin_memory_loop", "")]],
    "data": [[(f"{SITE}/torch/utils/data/dataloader.py", "_next_data", ""), ("data.py", "collate_fn", "")]],
    "compile": [[STEP, CALL, (f"{SITE}/torch/_inductor/compile_fx.py", "compile_fx_inner", "")]],
}  # fmt: skip
ROWS = [(name.partition(",")[0], calls) for name, many in CASES.items() for calls in many]


def traceback_of(calls):
    lines = ["Traceback (most recent call last):"]
    for file, function, code in calls:
        lines += [f'  File "{file}", line 12, in {function}', *([f"    {code}"] if code else [])]
    return "\n".join(lines)


@pytest.mark.parametrize(("stage", "calls"), ROWS)
def test_the_innermost_call_that_is_known_tells_the_stage(stage, calls):
    log = f"{traceback_of([('train.py', 'main', ''), *calls])}\n{DIES}\n"
    symptom = vramwise.diagnose(io.BytesIO(log.encode())).symptom
    assert symptom.stage == stage
    assert symptom.phase in ("", "forward", phases.stages()[stage].phase)


@pytest.mark.parametrize(("stage", "calls"), ROWS)
def test_a_traceback_without_its_last_line_is_no_success(stage, calls):
    """Nobody pastes half a traceback of a run that went well; what it stopped in is said, and that the end is missing."""
    diagnosis = vramwise.diagnose(io.BytesIO(traceback_of(calls).encode()))
    assert diagnosis.failed
    assert diagnosis.symptom.cut
    assert diagnosis.symptom.stage == stage
    assert "cut off" in diagnosis.sentence


def test_every_name_of_a_stage_is_in_the_table():
    def names(literal):
        for one in literal.__args__:
            yield from names(one) if hasattr(one, "__args__") else [one]

    assert set(names(StageName)) - {""} == set(phases.stages())
    assert {stage for stage, _ in ROWS} | {"forward", "train"} == set(phases.stages())


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("train.py → trainer.training_step → modeling_llama.forward → lm_head(): CUDA out of memory", "loss"),
        ("main -> train_loop -> save_pretrained -> state_dict()  # OOM here", "save"),
        ("trainer.py:2560 _inner_training_loop\ntrainer.py:3782 training_step\nmodeling.py:80 apply_rotary_pos_emb\nOOM", "attention"),
        ('line 3479, in cross_entropy\n    return torch._C._nn.cross_entropy_loss(\nOOM', "loss"),
        ("    attn_output = F.scaled_dot_product_attention(q, k, v, mask)\n" + DIES, "attention"),
        (f"{DIES}\nTraceback (most recent call last):\n  File \"rm.py\", line 1, in main\n  File \"a/trainer.py\", line 9, in __init__\n", "to-device"),
        ("[/usr/lib/unsloth/save.py](https://localhost:8080/#) in _merge_lora(layer, name)\n    1 x\n" + DIES, "merge"),
        ("(Worker pid=3) ERROR 10-25 13:12:42 [core.py:7]   File \"/x/vllm/a.py\", line 3, in _dummy_sampler_run\n" + DIES, "vllm-sampler"),
        ("File ~/e/autocast_mode.py:115, in custom_fwd.<locals>.decorate_fwd(*args)\n--> 115     return fwd(*args)\n"
         "File ~/e/unsloth_zoo/gradient_checkpointing.py:145, in Checkpointer.forward(ctx)\n--> 145     x = y.to(\"cpu\", non_blocking = True)\n"
         "RuntimeError: CUDA error: out of memory", "offload"),
        ("(pid=3) ray::WorkerDict.actor_rollout_generate_sequences()\nOOM in softmax", "generate"),
    ],
)  # fmt: skip
def test_calls_are_found_however_they_were_pasted(text, stage):
    assert vramwise.diagnose(io.BytesIO(text.encode())).symptom.stage == stage


def test_the_page_about_running_out_of_memory_has_every_stage_and_no_other():
    page = (Path(__file__).parent.parent.parent / "docs" / "out-of-memory.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == set(phases.stages())


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Free memory on device cuda:0 (3.1/23.6 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 21.2 GiB)",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.",
        "RuntimeError: CUDA Error: out of memory at /w/csrc/cumem_allocator.cpp:62",
        "UserWarning: Failed to clone() tensor with name lm_head.weight. Error: CUDA out of memory. Tried to allocate 9 GiB",
    ],
)
def test_a_message_alone_tells_the_stage_that_the_page_says(line):
    page = (Path(__file__).parent.parent.parent / "docs" / "out-of-memory.md").read_text("utf-8")
    stage = vramwise.diagnose(io.BytesIO(line.encode())).symptom.stage
    row = next(row for row in page.splitlines() if row.startswith(f"| `{stage}` |"))
    words = re.findall(r'"([^"]+)"|`([^`]+)`', row)
    assert any(part in line for said in words for part in re.split("…", said[0] or said[1]) if len(part) > 8)
