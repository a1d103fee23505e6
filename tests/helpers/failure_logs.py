"""Pieces of logs in the formats of torch, transformers, launchers and loggers: written for these tests."""


def oom(
    asked="2.00 GiB",
    *,
    gpu="0",
    total="23.64 GiB",
    free="100.00 MiB",
    used="22.80 GiB",
    allocated="22.00 GiB",
    pieces="300.00 MiB",
    allowed="",
    conf="PYTORCH_ALLOC_CONF",
):
    allowed = f"{allowed} allowed; " if allowed else ""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU {gpu} has a total capacity of {total} of "
        f"which {free} is free. Including non-PyTorch memory, this process has {used} memory in use. {allowed}Of the allocated "
        f"memory {allocated} is allocated by PyTorch, and {pieces} is reserved by PyTorch but unallocated. If reserved but "
        f"unallocated memory is large try setting {conf}=expandable_segments:True to avoid fragmentation."
    )


def old_oom(
    asked="1.50 GiB",
    *,
    gpu=0,
    total="15.78 GiB",
    allocated="13.90 GiB",
    free="300.19 MiB",
    reserved="14.40 GiB",
    allowed="",
):
    allowed = f" {allowed} allowed;" if allowed else ""
    return (
        f"RuntimeError: CUDA out of memory. Tried to allocate {asked} (GPU {gpu}; {total} total capacity; {allocated} already "
        f"allocated; {free} free;{allowed} {reserved} reserved in total by PyTorch) If reserved memory is >> allocated memory try "
        "setting max_split_size_mb to avoid fragmentation."
    )


def bar(done, total, note=""):
    percent = 100 * done // total
    return f"\r{note}{percent:3d}%|{'█' * (percent // 10):<10}| {done}/{total} [00:{done % 60:02d}<05:00,  1.21s/it]"


def traceback(*calls):
    """calls: (file, function) or (file, function, code)."""
    lines = ["Traceback (most recent call last):"]
    for file, function, *code in calls:
        lines.append(f'  File "{file}", line 123, in {function}')
        lines.append(f"    {code[0] if code else function + '(*args)'}")
    return "\n".join(lines)


SITE = "/usr/lib/python3.11/site-packages"
TRAIN = (f"{SITE}/transformers/trainer.py", "_inner_training_loop")
STEP = (f"{SITE}/transformers/trainer.py", "training_step")
LOSS = (f"{SITE}/transformers/trainer.py", "compute_loss", "outputs = model(**inputs)")
MODULE = (f"{SITE}/torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)")
LLAMA = f"{SITE}/transformers/models/llama/modeling_llama.py"
MLP = (LLAMA, "forward", "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))")
CROSS = (f"{SITE}/transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()")
EAGER = (LLAMA, "eager_attention_forward", "attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling")
BACKWARD = (f"{SITE}/torch/autograd/__init__.py", "backward", "_engine_run_backward(")
ADAM = (f"{SITE}/torch/optim/adamw.py", "_init_group", "state['exp_avg'] = torch.zeros_like(")
OPTIMIZER = (f"{SITE}/torch/optim/optimizer.py", "wrapper", "out = func(*args, **kwargs)")
EVALUATE = (f"{SITE}/transformers/trainer.py", "evaluate")
EVAL_LOOP = (f"{SITE}/transformers/trainer.py", "evaluation_loop")
SAVE = (f"{SITE}/transformers/trainer.py", "_save_checkpoint")
LOAD = (f"{SITE}/transformers/modeling_utils.py", "from_pretrained")
RESUME = (f"{SITE}/transformers/trainer.py", "_load_optimizer_and_scheduler")


def losses(first, last, *, memory=None):
    lines = []
    for step in range(first, last + 1):
        figure = f", 'memory/allocated (GiB)': {memory(step):.3f}" if memory else ""
        lines.append(
            f"{{'loss': {3 / step:.4f}, 'grad_norm': 0.71, 'learning_rate': 2e-05, 'epoch': {step / 100:.2f}{figure}}}"
        )
        lines.append(bar(step, 400))
    return "\n".join(lines)


def lines(*parts):
    return "\n".join(parts) + "\n"
