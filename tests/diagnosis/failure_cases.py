"""The table: a log of our own making, what it is, and its cause. None: no failure; "recovered": the run got over it."""

from failure_logs import (
    ADAM,
    BACKWARD,
    CROSS,
    EAGER,
    EVAL_LOOP,
    EVALUATE,
    LLAMA,
    LOAD,
    LOSS,
    MLP,
    MODULE,
    OPTIMIZER,
    RESUME,
    SAVE,
    SITE,
    STEP,
    TRAIN,
    bar,
    lines,
    losses,
    old_oom,
    oom,
    traceback,
)

STARTED = lines(
    "***** Running training *****",
    "  Num examples = 51,760",
    "  Instantaneous batch size per device = 4",
    "  Gradient Accumulation steps = 2",
    "  Total optimization steps = 400",
)
MODEL = '  "num_attention_heads": 32,\n  "vocab_size": 128256,\n  "hidden_size": 4096,\n  "intermediate_size": 14336,\nsequence_len: 2048\n'

CASES = {
    # --- out of memory, by place in the run
    "first forward": (
        lines(
            STARTED,
            bar(0, 400),
            traceback(TRAIN, STEP, LOSS, MODULE, MLP),
            oom("112.00 MiB", free="90.00 MiB", pieces="12.00 MiB"),
        ),
        "capacity",
    ),
    "first backward": (lines(STARTED, bar(0, 400), traceback(TRAIN, STEP, BACKWARD), oom("448.00 MiB")), "capacity"),
    "old text, first forward": (lines(bar(0, 90), traceback(TRAIN, STEP, LOSS, MODULE, MLP), old_oom()), "capacity"),
    "optimizer at step 1": (
        lines(
            STARTED,
            bar(0, 400),
            traceback(TRAIN, OPTIMIZER, ADAM),
            oom("250.00 MiB", free="100.00 MiB", pieces="90.00 MiB"),
        ),
        "optimizer-state",
    ),
    "forward of step 2": (
        lines(STARTED, bar(0, 400), bar(1, 400), traceback(TRAIN, STEP, LOSS, MODULE, MLP), oom("448.00 MiB")),
        "optimizer-state",
    ),
    "bitsandbytes optimizer": (
        lines(
            bar(0, 400),
            traceback(
                TRAIN,
                (f"{SITE}/bitsandbytes/optim/optimizer.py", "init_state"),
                (f"{SITE}/bitsandbytes/optim/optimizer.py", "step"),
            ),
            oom("64.00 MiB", free="10.00 MiB", pieces="40.00 MiB"),
        ),
        "optimizer-state",
    ),
    "loss, by traceback": (
        lines(
            STARTED,
            bar(0, 400),
            traceback(
                TRAIN,
                STEP,
                LOSS,
                MODULE,
                (LLAMA, "forward", "loss = self.loss_function(logits=logits, labels=labels)"),
                CROSS,
            ),
            oom("3.91 GiB", allocated="20.10 GiB", pieces="600.00 MiB"),
        ),
        "logits",
    ),
    "loss, by size alone": (
        lines(STARTED, MODEL, bar(0, 400), oom("3.91 GiB", allocated="20.10 GiB", pieces="600.00 MiB")),
        "logits",
    ),
    "loss in trl": (
        lines(
            bar(0, 50),
            traceback(
                (f"{SITE}/trl/trainer/dpo_trainer.py", "compute_loss"),
                (f"{SITE}/trl/trainer/utils.py", "selective_log_softmax", "logps = logits.log_softmax(-1)"),
            ),
            oom("5.20 GiB", free="2.00 GiB"),
        ),
        "logits",
    ),
    "eager attention": (
        lines(
            STARTED,
            bar(0, 400),
            traceback(TRAIN, STEP, LOSS, MODULE, (LLAMA, "forward"), EAGER),
            oom("1.00 GiB", free="200.00 MiB", pieces="80.00 MiB"),
        ),
        "eager-attention",
    ),
    "eager attention, by size": (
        lines(STARTED, MODEL, bar(0, 400), oom("1.00 GiB", free="200.00 MiB", pieces="80.00 MiB")),
        "eager-attention",
    ),
    "in eval": (
        lines(
            STARTED,
            losses(1, 10),
            "***** Running Evaluation *****",
            "  Num examples = 100",
            "  Batch size = 16",
            traceback(TRAIN, EVALUATE, EVAL_LOOP, MODULE, MLP),
            oom("448.00 MiB"),
        ),
        "eval-batch",
    ),
    "in eval, by the bar": (lines(STARTED, losses(1, 10), bar(1, 25), bar(2, 25), oom("448.00 MiB")), "eval-batch"),
    "eval loss piles up": (
        lines(
            STARTED,
            losses(1, 4),
            traceback(TRAIN, EVALUATE, EVAL_LOOP, (f"{SITE}/transformers/trainer_pt_utils.py", "nested_concat")),
            oom("7.80 GiB", free="1.00 GiB"),
        ),
        "eval-batch",
    ),
    # --- pairs that are easily confused: what was asked for, and why it was refused
    "logits of a larger eval batch": (
        lines(
            STARTED,
            MODEL,
            losses(1, 4),
            "***** Running Evaluation *****",
            "  Num examples = 100",
            "  Batch size = 16",
            traceback(TRAIN, EVALUATE, EVAL_LOOP, LOSS, MODULE, CROSS),
            oom("15.66 GiB", free="2.00 GiB", allocated="20.10 GiB"),
        ),
        "eval-batch",
    ),
    "logits of eval, batch unknown": (
        lines(bar(0, 90), bar(7, 90), traceback(TRAIN, EVALUATE, EVAL_LOOP, LOSS, CROSS), oom("3.91 GiB")),
        "eval-batch",
    ),
    "logits before any step, though in eval": (
        lines(STARTED, MODEL, bar(0, 400), traceback(TRAIN, EVALUATE, EVAL_LOOP, LOSS, CROSS), oom("3.91 GiB")),
        "logits",
    ),
    "eager attention in eval after steps": (
        lines(STARTED, losses(1, 4), traceback(TRAIN, EVALUATE, EVAL_LOOP, MODULE, EAGER), oom("1.00 GiB")),
        "eval-batch",
    ),
    "a leak that ends in an evaluation": (
        lines(
            STARTED,
            losses(1, 30, memory=lambda step: 10 + 0.2 * step),
            "{'eval_loss': 1.2, 'eval_runtime': 3.1, 'epoch': 0.1}",
            losses(31, 60, memory=lambda step: 10 + 0.2 * step),
            traceback(TRAIN, EVALUATE, EVAL_LOOP, MODULE, MLP),
            oom("112.00 MiB", free="60.00 MiB", pieces="30.00 MiB"),
        ),
        "leak",
    ),
    "fragments in a later evaluation": (
        lines(
            STARTED,
            losses(1, 10),
            "{'eval_loss': 1.2, 'eval_runtime': 3.1, 'epoch': 0.1}",
            losses(11, 20),
            traceback(TRAIN, EVALUATE, EVAL_LOOP, MODULE, MLP),
            oom("2.00 GiB", allocated="15.00 GiB", pieces="7.30 GiB", free="300.00 MiB"),
        ),
        "fragmentation",
    ),
    "logits of step 2": (
        lines(STARTED, MODEL, bar(0, 400), bar(1, 400), traceback(TRAIN, STEP, LOSS, CROSS), oom("3.91 GiB")),
        "optimizer-state",
    ),
    "logits of step 2 with few trainable parameters": (
        lines(
            "trainable params: 13,631,488 || all params: 8,043,892,736 || trainable%: 0.1695",
            STARTED,
            MODEL,
            bar(0, 400),
            bar(1, 400),
            traceback(TRAIN, STEP, LOSS, CROSS),
            oom("3.91 GiB"),
        ),
        "logits",
    ),
    "logits after an evaluation": (
        lines(
            STARTED,
            MODEL,
            losses(1, 3),
            "{'eval_loss': 1.2, 'eval_runtime': 3.1, 'epoch': 0.1}",
            traceback(TRAIN, STEP, LOSS, CROSS),
            oom("3.91 GiB", free="700.00 MiB", pieces="200.00 MiB"),
        ),
        "after-eval",
    ),
    "logits into fragments": (
        lines(
            STARTED,
            MODEL,
            bar(0, 400),
            traceback(TRAIN, STEP, LOSS, CROSS),
            oom("3.91 GiB", allocated="15.00 GiB", pieces="7.30 GiB", free="300.00 MiB"),
        ),
        "fragmentation",
    ),
    "logits beside somebody else": (
        lines(
            MODEL,
            bar(0, 30),
            traceback(TRAIN, STEP, LOSS, CROSS),
            oom("3.91 GiB", used="9.00 GiB", allocated="8.00 GiB", pieces="200.00 MiB", free="400.00 MiB"),
        ),
        "other-process",
    ),
    "logits while memory rises": (
        lines(
            STARTED,
            MODEL,
            losses(1, 60, memory=lambda step: 10 + 0.2 * step),
            traceback(TRAIN, STEP, LOSS, CROSS),
            oom("3.91 GiB", free="60.00 MiB", pieces="30.00 MiB"),
        ),
        "leak",
    ),
    "memory rises once, at the optimizer's first step": (
        lines(
            STARTED,
            losses(1, 12, memory=lambda step: 10 + 8 * (step > 1)),
            traceback(TRAIN, STEP, BACKWARD),
            oom("448.00 MiB"),
        ),
        "capacity",
    ),
    "two figures are no slope": (
        lines(
            STARTED,
            losses(1, 2, memory=lambda step: 10 + 5 * step),
            traceback(TRAIN, STEP, BACKWARD),
            oom("448.00 MiB"),
        ),
        "capacity",
    ),
    "a forward pass in the optimizer's closure": (
        lines(
            bar(0, 400),
            traceback(
                (f"{SITE}/lightning/pytorch/loops/optimization/automatic.py", "_optimizer_step"),
                OPTIMIZER,
                (f"{SITE}/torch/optim/adamw.py", "step", "loss = closure()"),
                (f"{SITE}/lightning/pytorch/loops/optimization/automatic.py", "closure"),
                ("train.py", "training_step", "return self.model(**batch).loss"),
                MODULE,
                MLP,
            ),
            oom("448.00 MiB"),
        ),
        "capacity",
    ),
    "DeepSpeed makes the states at its start": (
        lines(
            traceback(
                (f"{SITE}/accelerate/accelerator.py", "_prepare_deepspeed"),
                (f"{SITE}/deepspeed/runtime/zero/stage_1_and_2.py", "initialize_optimizer_states"),
            ),
            oom("7.00 GiB", free="1.00 GiB", allocated="20.00 GiB"),
        ),
        "optimizer-state",
    ),
    "after eval": (
        lines(
            STARTED,
            losses(1, 10),
            bar(24, 25),
            "{'eval_loss': 1.2, 'eval_runtime': 3.1, 'epoch': 0.1}",
            traceback(TRAIN, STEP, BACKWARD),
            oom("1.00 GiB", free="700.00 MiB", pieces="200.00 MiB"),
        ),
        "after-eval",
    ),
    "while saving under FSDP": (
        lines(
            STARTED,
            losses(1, 10),
            "Saving model checkpoint to ./out/checkpoint-10",
            traceback(
                TRAIN, SAVE, (f"{SITE}/torch/distributed/fsdp/_state_dict_utils.py", "_full_post_state_dict_hook")
            ),
            oom("1.02 GiB", free="200.00 MiB"),
        ),
        "save-gather",
    ),
    "while saving, one GPU": (
        lines(
            STARTED,
            losses(1, 3),
            traceback(TRAIN, SAVE, (f"{SITE}/peft/peft_model.py", "save_pretrained")),
            oom("1.02 GiB", free="200.00 MiB"),
        ),
        "save-gather",
    ),
    "while loading": (
        lines(
            "Loading checkpoint shards:  25%|██▌       | 1/4 [00:05<00:15,  5.10s/it]",
            traceback(
                ("train.py", "main"),
                LOAD,
                (f"{SITE}/transformers/modeling_utils.py", "_load_state_dict_into_meta_model"),
            ),
            oom("1.02 GiB", free="200.00 MiB", pieces="10.00 MiB"),
        ),
        "load",
    ),
    "while loading, no traceback": (
        lines(
            "Loading checkpoint shards:  25%|██▌       | 1/4 [00:05<00:15,  5.10s/it]",
            oom("1.02 GiB", free="200.00 MiB", pieces="10.00 MiB"),
        ),
        "load",
    ),
    "while resuming": (
        lines(
            "Resuming training from checkpoint ./out/checkpoint-100",
            traceback(
                ("train.py", "main"),
                (f"{SITE}/transformers/trainer.py", "train"),
                RESUME,
                (f"{SITE}/torch/serialization.py", "load"),
            ),
            oom("1.02 GiB", free="200.00 MiB", pieces="10.00 MiB"),
        ),
        "resume",
    ),
    # --- out of memory, by figures
    "fragments": (
        lines(STARTED, bar(0, 400), oom("2.00 GiB", allocated="15.00 GiB", pieces="7.30 GiB", free="300.00 MiB")),
        "fragmentation",
    ),
    "fragments, old text": (
        lines(bar(0, 30), old_oom("2.00 GiB", allocated="9.00 GiB", reserved="14.90 GiB")),
        "fragmentation",
    ),
    "someone else's memory": (
        lines(
            bar(0, 30), oom("1.00 GiB", used="9.00 GiB", allocated="8.00 GiB", pieces="200.00 MiB", free="400.00 MiB")
        ),
        "other-process",
    ),
    "someone else's memory, old text": (
        lines(bar(0, 30), old_oom("1.00 GiB", allocated="5.00 GiB", reserved="5.20 GiB", free="100.00 MiB")),
        "other-process",
    ),
    "memory fraction": (
        lines(
            STARTED,
            bar(0, 400),
            traceback(TRAIN, STEP, LOSS, MODULE, MLP),
            oom(
                "448.00 MiB",
                total="139.81 GiB",
                free="115.00 GiB",
                used="24.50 GiB",
                allowed="24.00 GiB",
                allocated="23.60 GiB",
                pieces="90.00 MiB",
            ),
        ),
        "capacity",
    ),
    "leak, by the figures logged": (
        lines(
            STARTED,
            losses(1, 60, memory=lambda step: 10 + 0.2 * step),
            traceback(TRAIN, STEP, LOSS, MODULE, MLP),
            oom("112.00 MiB", free="60.00 MiB", pieces="30.00 MiB"),
        ),
        "leak",
    ),
    "jumps: longer batches": (
        lines(
            STARTED,
            losses(1, 60, memory=lambda step: 10 + 4 * (step > 20) + 3 * (step > 50)),
            traceback(TRAIN, STEP, LOSS, MODULE, MLP),
            oom("500.00 MiB", free="60.00 MiB", pieces="30.00 MiB"),
        ),
        "long-tail",
    ),
    "late and large": (
        lines(
            STARTED,
            losses(1, 200),
            traceback(TRAIN, STEP, BACKWARD),
            oom("6.00 GiB", free="1.10 GiB", allocated="19.00 GiB"),
        ),
        "long-tail",
    ),
    "one huge request": (
        lines(bar(0, 400), oom("9.00 GiB", free="3.00 GiB", allocated="18.00 GiB")),
        "oversized-batch",
    ),
    "capacty, as torch 2.1 wrote it": (
        lines(bar(0, 400), traceback(TRAIN, STEP, BACKWARD), oom("448.00 MiB").replace("capacity", "capacty")),
        "capacity",
    ),
    "cached, as torch 1.2 wrote it": (
        lines(
            "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 10.92 GiB total capacity; 9.90 GiB already allocated; 60.00 MiB free; 10.40 MiB cached)"
        ),
        "capacity",
    ),
    "no index": (lines(bar(0, 400), oom("448.00 MiB", gpu="")), "capacity"),
    "AMD": (lines(bar(0, 400), oom("448.00 MiB").replace("CUDA", "HIP")), "capacity"),
    "Apple": (
        lines(
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.20 GB, other allocations: 600.00 MB, max allowed: 18.13 GB). Tried to allocate 500.00 MB on private pool."
        ),
        "capacity",
    ),
    "async backend": (
        lines(
            "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
            "Currently allocated     : 18.00 GiB",
            "Requested               : 512.00 MiB",
            "Device limit            : 23.64 GiB",
            "Free (according to CUDA): 20.00 MiB",
            "PyTorch limit (set by user-supplied memory fraction)",
            "                        : 17179869184.00 GiB",
        ),
        "fragmentation",
    ),
    # --- out of memory, outside torch's allocator
    "NCCL": (
        lines(
            bar(3, 400),
            "gpu-7:1234:1299 [1] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        ),
        "outside-torch",
    ),
    "cuBLAS": (
        lines(
            bar(0, 400),
            traceback(TRAIN, STEP, LOSS, MODULE, MLP),
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
        "outside-torch",
    ),
    "bitsandbytes": (
        lines(bar(0, 400), "Error out of memory at line 380 in file /src/csrc/pythonInterface.cpp"),
        "outside-torch",
    ),
    "driver": (
        lines(
            bar(0, 400),
            "RuntimeError: CUDA error: out of memory",
            "CUDA kernel errors might be asynchronously reported at some other API call",
        ),
        "outside-torch",
    ),
    # --- formats around it
    "rank prefix": (
        lines(
            "[rank3]: Traceback (most recent call last):",
            f'[rank3]:   File "{OPTIMIZER[0]}", line 1, in step',
            f'[rank3]:   File "{ADAM[0]}", line 1, in _init_group',
            "[rank3]: " + oom("250.00 MiB", free="10.00 MiB"),
        ),
        "optimizer-state",
    ),
    "ranks interleaved": (
        lines(
            "[rank0]: Traceback (most recent call last):",
            "[rank1]: Traceback (most recent call last):",
            f'[rank1]:   File "{SITE}/transformers/trainer.py", line 9, in evaluate',
            f'[rank0]:   File "{SITE}/transformers/trainer.py", line 9, in evaluate',
            "[rank1]: " + oom("448.00 MiB", gpu="1"),
            "[rank0]: " + oom("448.00 MiB"),
            "E0101 12:00:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0",
        ),
        "eval-batch",
    ),
    "torchrun --tee": (
        lines("[default1]:" + oom("448.00 MiB", gpu="1"), "[default0]:" + oom("448.00 MiB")),
        "capacity",
    ),
    "colours": (
        lines(
            bar(0, 400),
            "\x1b[31m\x1b[1m"
            + oom("2.00 GiB", allocated="15.00 GiB", pieces="7.30 GiB").replace("2.00", "\x1b[36m2.00\x1b[0m")
            + "\x1b[0m",
        ),
        "fragmentation",
    ),
    "folded by rich": (
        lines(
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a ",
            "total capacity of 23.64 GiB of which 300.00 MiB is free. Including non-PyTorch ",
            "memory, this process has 22.80 GiB memory in use. Of the allocated memory 15.00 ",
            "GiB is allocated by PyTorch, and 7.30 GiB is reserved by PyTorch but unallocated.",
        ),
        "fragmentation",
    ),
    "rich's frames": (
        lines(
            f"│ {SITE}/transformers/trainer.py:2100 in evaluate                 │",
            "│   2099   │   │   output = self.evaluation_loop(                 │",
            oom("448.00 MiB"),
        ),
        "eval-batch",
    ),
    "logged by deepspeed": (
        lines(
            "[2026-01-02 10:00:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -9"
        ),
        "host-memory",
    ),
    # --- host
    "kernel": (lines("[123456.7] Out of memory: Killed process 4321 (python) total-vm:123456kB"), "host-memory"),
    "shell": (lines("train.sh: line 12:  4321 Killed                  python train.py"), "host-memory"),
    "bare Killed": (lines(bar(10, 400), "Killed"), "host-memory"),
    "slurm": (
        lines(
            "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed."
        ),
        "host-memory",
    ),
    "torchrun -9": (
        lines("  exitcode  : -9 (pid: 4321)", "  traceback : Signal 9 (SIGKILL) received by PID 4321"),
        "host-memory",
    ),
    "exit code 137": (lines("Process finished with exit code 137 (interrupted by signal 9: SIGKILL)"), "host-memory"),
    "worker killed": (lines("RuntimeError: DataLoader worker (pid 4321) is killed by signal: Killed. "), "host-memory"),
    "worker's shared memory": (
        lines(
            "RuntimeError: DataLoader worker (pid 4321) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."
        ),
        "host-shared-memory",
    ),
    "host allocation": (
        lines(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)"
        ),
        "host-memory",
    ),
    # --- dtypes and settings
    "unscale": (
        lines(
            bar(0, 400),
            traceback(
                (
                    f"{SITE}/torch/amp/grad_scaler.py",
                    "_unscale_grads_",
                    'raise ValueError("Attempting to unscale FP16 gradients.")',
                )
            ),
            "ValueError: Attempting to unscale FP16 gradients.",
        ),
        "fp16-trainable-weights",
    ),
    "scaler and bf16": (
        lines(
            "[rank0]: NotImplementedError: \"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"
        ),
        "fp16-scaler-bf16-weights",
    ),
    "self and mat2": (
        lines("RuntimeError: self and mat2 must have the same dtype, but got BFloat16 and Float"),
        "mixed-operands",
    ),
    "scalar type": (lines("RuntimeError: expected scalar type Half but found Float"), "mixed-operands"),
    "flash dtype, newer": (
        lines("RuntimeError: FlashAttention only supports fp16, bf16, and fp8_e4m3 data type"),
        "flash-needs-half",
    ),
    "no kernel image": (
        lines("torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"),
        "card-without-kernels",
    ),
    "flash card": (lines("RuntimeError: FlashAttention only supports Ampere GPUs or newer."), "flash-card"),
    "bf16 by autocast": (
        lines("RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16."),
        "bf16-unsupported",
    ),
    "bf16 by vllm": (
        lines(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5."
        ),
        "bf16-unsupported",
    ),
    "flatten, frozen": (
        lines("ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"),
        "fsdp-mixed-frozen",
    ),
    "recompute": (
        lines(
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.",
            "tensor at position 4:",
            "saved metadata: {'shape': torch.Size([1, 512, 64]), 'dtype': torch.float32, 'device': device(type='cuda', index=0)}",
            "recomputed metadata: {'shape': torch.Size([1, 512, 64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}",
        ),
        "recompute-dtype",
    ),
    "recompute under ZeRO-3": (
        lines(
            "CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.",
            "saved metadata: {'shape': torch.Size([64, 64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}",
            "recomputed metadata: {'shape': torch.Size([0]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}",
        ),
        "recompute-freed-weights",
    ),
    "auto batch, after several": (
        lines(
            oom(),
            "Decreasing batch size to: 2.",
            oom(),
            "Decreasing batch size to: 1.",
            oom(),
            "RuntimeError: No executable batch size found, reached zero.",
        ),
        "auto-batch-exhausted",
    ),
    "shared memory of a kernel": (
        lines(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help."
        ),
        "kernel-shared-memory",
    ),
    # --- found, not explained
    "another exception": (lines(traceback(("train.py", "main")), "KeyError: 'text'"), "bad-data"),
    "only the aftermath": (
        lines("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "  exitcode  : 1 (pid: 4321)"),
        "?",
    ),
    # --- near misses: no failure
    "empty": ("", None),
    "a good run": (lines(STARTED, losses(1, 400), "{'train_runtime': 100.0, 'train_loss': 0.5}"), None),
    "advice about memory": (
        lines("Tip: if you run out of memory, lower micro_batch_size or turn gradient_checkpointing on.", losses(1, 5)),
        None,
    ),
    "a sample of the data": (
        lines(
            '{"instruction": "I get RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)", "output": "…"}'
        ),
        None,
    ),
    "a question in the data": (
        lines("### Instruction: why do I get CUDA out of memory. Tried to allocate 20.00 MiB when training?"),
        None,
    ),
    "a comment": (lines("# ValueError: Attempting to unscale FP16 gradients.", losses(1, 3)), None),
    "a line of source": (lines('    raise ValueError("Attempting to unscale FP16 gradients.")'), None),
    "flash warning": (
        lines(
            "Flash Attention 2.0 only supports torch.float16 and torch.bfloat16 dtypes, but the current dtype in LlamaForCausalLM is torch.float32.",
            losses(1, 3),
        ),
        None,
    ),
    "memory printed, nothing wrong": (
        lines("Currently allocated     : 16.66 GiB", "Requested               : 31.27 MiB", losses(1, 3)),
        None,
    ),
    "exit code 0": (lines(losses(1, 3), "Process finished with exit code 0", "exits successfully"), None),
    "error rate": (lines("eval word error rate: 0.137", "exit criterion 137 reached", losses(1, 3)), None),
    "retries of the allocator": (
        lines(
            "1 pytorch allocator cache flushes since last step. this happens when there is high memory pressure",
            losses(1, 3),
        ),
        None,
    ),
    "oom in a name": (lines("wandb: Syncing run bloom-room-7", "loaded 12 zoom levels", losses(1, 3)), None),
    "killed in prose": (lines("the character was Killed in chapter 3, and 137 pages follow", losses(1, 3)), None),
    "batch shrunk, then fine": (lines(oom(), "Decreasing batch size to: 2.", STARTED, losses(1, 30)), "recovered"),
    "restarted, then fine": (
        lines(STARTED, losses(1, 20), traceback(TRAIN, STEP, BACKWARD), oom(), "restarting", losses(10, 60)),
        "recovered",
    ),
}
