"""More of the table: the ways schedulers, shells, notebooks, rich and C++ report a failure, and messages that lie."""

from failure_logs import MLP, SITE, STEP, TRAIN, bar, lines, losses, old_oom, oom, traceback

NCCL = lines(
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled cuda error",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
    "Last error:",
)
METADATA = "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass."
SHORT = oom("3.91 GiB", free="1.10 GiB", allocated="21.50 GiB", pieces="400.00 MiB")

HOST = {
    "cgroup": "[77.1] Memory cgroup out of memory: Killed process 4321 (python) total-vm:1234kB",
    "older kernel": "[77.1] Out of memory: Kill process 4321 (python) score 901 or sacrifice child",
    "zsh": "zsh: killed     python train.py",
    "zsh, a job": "[1]    4321 killed     python train.py",
    "bash, a job": "[2]+  Killed                  nohup python train.py",
    "make": "make: *** [Makefile:7: train] Error 137",
    "srun": "srun: error: node17: task 3: Out Of Memory",
    "slurm on a named node": "slurmstepd-gpu7: error: Detected 1 oom-kill event(s) in StepId=12.0.",
    "slurm, older": "slurmstepd: error: Job 12 exceeded memory limit (67120000 > 67108864), being killed",
    "PBS": "=>> PBS: job killed: mem 67108864kb exceeded limit 33554432kb",
    "LSF": "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
    "spawn": "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL",
    "Ray's monitor": "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
    "Ray's exception": "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    "datasets": "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.",
    "mmap": "RuntimeError: unable to mmap 4943162336 bytes from file </m/model-1.safetensors>: Cannot allocate memory (12)",
    "numpy": "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (10, 10)",
    "torch before 1.2": "RuntimeError: [enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0",
}
DTYPES = {
    "a convolution": "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
    "attention's operands": "RuntimeError: Expected query, key, and value to have the same dtype, but got query.dtype: float key.dtype: float and value.dtype: c10::BFloat16 instead.",
    "attention's mask": "RuntimeError: Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: c10::BFloat16 and  query.dtype: float instead.",
    "index put": "RuntimeError: Index put requires the source and destination dtypes match, got BFloat16 for the destination and Float for the source.",
    "index add": "RuntimeError: index_add_(): self and source expected to have the same dtype, but got (self) Half and (source) Float",
    "a loss": "RuntimeError: Found dtype Float but expected BFloat16",
    "xformers": "ValueError: Query/Key/Value should either all have the same dtype, or (in the quantized case) Key/Value should have dtype torch.int32",
}

MORE = {
    **{f"host: {name}": (lines(bar(3, 400), text), "host-memory") for name, text in HOST.items()},
    **{f"two dtypes: {name}": (lines(text), "mixed-operands") for name, text in DTYPES.items()},
    "host: shared memory, by the file": (
        lines("RuntimeError: unable to write to file </torch_77_5_0>: No space left on device (28)"),
        "host-shared-memory",
    ),
    "host: SIGBUS": (
        lines("[launch.py:321:sigkill_handler] ['python'] exits with return code = -7"),
        "host-shared-memory",
    ),
    "NCCL, quoted by torch": (NCCL + "Cuda failure 2 'out of memory'\n", "outside-torch"),
    "NCCL's calloc, quoted by torch": (NCCL + "Failed to CUDA calloc async 608 bytes\n", "outside-torch"),
    "NCCL's shared memory, quoted by torch": (
        NCCL + "Error while creating shared memory segment /dev/shm/nccl-a1 (size 9637888)\n",
        "host-shared-memory",
    ),
    "cuDNN without a handle": (lines("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), "outside-torch"),
    "pinned memory": (
        lines(
            traceback(
                (f"{SITE}/deepspeed/runtime/zero/stage3.py", "_create_fp16_partitions"),
                (f"{SITE}/deepspeed/accelerator/cuda_accelerator.py", "pin_memory", "return tensor.pin_memory()"),
            ),
            "RuntimeError: CUDA error: out of memory",
        ),
        "host-memory",
    ),
    "C++ ends": (
        lines(
            "terminate called after throwing an instance of 'c10::OutOfMemoryError'",
            "  what():  " + oom("448.00 MiB").partition(": ")[2],
        ),
        "capacity",
    ),
    "its name alone": (lines("torch.OutOfMemoryError: no room on cuda:0"), "capacity"),
    "a size that cannot be": (
        lines("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."),
        "absurd-size",
    ),
    "a quantised model that spills": (
        lines(
            "ValueError: ",
            "                Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit",
        ),
        "load",
    ),
    "an address behind the exception": (
        lines("RuntimeError: [address=10.0.0.1:3709, pid=7] FlashAttention only support fp16 and bf16 data type"),
        "flash-needs-half",
    ),
    "no kernel for half on the CPU": (
        lines("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'"),
        "dtype-not-implemented",
    ),
    "no kernel for bf16": (
        lines("RuntimeError: \"triu_tril_cuda_template\" not implemented for 'BFloat16'"),
        "dtype-not-implemented",
    ),
    "bf16 to numpy": (lines("TypeError: Got unsupported ScalarType BFloat16"), "dtype-not-implemented"),
    "loss scale": (
        lines("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
        "fp16-overflow",
    ),
    "FSDP2's dtypes": (
        lines("AssertionError: FSDP expects uniform original parameter dtype but got {torch.float32, torch.bfloat16}"),
        "fsdp-mixed-dtypes",
    ),
    "recomputed in another shape": (
        lines(
            METADATA,
            "saved metadata: {'shape': torch.Size([1, 12, 99, 64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}",
            "recomputed metadata: {'shape': torch.Size([1, 12, 198, 64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}",
        ),
        "recompute-changed",
    ),
    "recomputed another number": (
        lines(
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation."
        ),
        "recompute-changed",
    ),
    "Triton before 2.0": (
        lines("triton.code_gen.OutOfResources: out of resource: shared memoryRequired: 110592Hardware limit: 101376"),
        "kernel-shared-memory",
    ),
    # --- tracebacks drawn otherwise
    "rich on Windows": (
        lines(
            bar(0, 400),
            "│ C:\\kit\\venv\\lib\\site-packages\\torch\\optim\\adamw.py:160 in step        │",
            "│   159 │   │   │   │   beta1, beta2 = group['betas']                          │",
            old_oom("86.00 MiB", free="33.00 MiB", reserved="13.95 GiB"),
        ),
        "optimizer-state",
    ),
    "rich, folded, pointing at the logits": (
        lines(
            "│ /usr/lib/python3.11/site-packages/transformers/models/llama/modelin │",
            "│ g_llama.py:1183 in forward                                          │",
            "│                                                                     │",
            "│   1182 │   │   logits = self.lm_head(hidden_states)                   │",
            "│ ❱ 1183 │   │   logits = logits.float()                                │",
            "╰─────────────────────────────────────────────────────────────────────╯",
            SHORT,
        ),
        "logits",
    ),
    "IPython": (
        lines(
            "OutOfMemoryError                          Traceback (most recent call last)",
            "Cell In[3], line 1",
            "----> 1 trainer.train()",
            "",
            f"File {SITE}/transformers/loss/loss_utils.py:38, in ForCausalLMLoss(logits, labels, **kwargs)",
            "     37 # a comment",
            "---> 38 logits = logits.float()",
            "",
            SHORT,
        ),
        "logits",
    ),
    "IPython before 8": (
        lines(
            "<ipython-input-3-fc2a900ad6bc> in <module>()",
            "----> 1 trainer.train()",
            f"{SITE}/torch/optim/adamw.py in step(self, closure)",
            old_oom("86.00 MiB", free="33.00 MiB", reserved="13.95 GiB"),
        ),
        "optimizer-state",
    ),
    "logged before its traceback": (
        lines(
            "2026-01-05 10:00:00 ERROR train: " + old_oom("86.00 MiB", free="33.00 MiB").partition(": ")[2],
            traceback((f"{SITE}/torch/optim/optimizer.py", "load_state_dict", "state_dict = deepcopy(state_dict)")),
            old_oom("86.00 MiB", free="33.00 MiB"),
        ),
        "resume",
    ),
    "what the model returned, to fp32": (
        lines(
            "O^O/ \\_/ \\    Batch size per device = 2 | Gradient accumulation steps = 4",
            f"{SITE}/accelerate/utils/operations.py in _convert_to_fp32(tensor)",
            "--> 781         return tensor.float()",
            oom("5.20 GiB", free="2.00 GiB"),
        ),
        "logits",
    ),
    "a bar of validation": (
        lines(
            "Train:   3%|█         | 600/22156 [3:14:25<82:43:44, 13.82s/it]",
            "Val:  21%|██        | 90/428 [01:53<04:33,  1.24it/s]",
            oom("448.00 MiB"),
        ),
        "eval-batch",
    ),
    "figures as ms-swift logs them": (
        lines(
            *(f"{{'loss': 1.0, 'memory(GiB)': {10 + 0.3 * step:.2f}, 'epoch': 0.1}}" for step in range(40)),
            oom("112.00 MiB", free="60.00 MiB", pieces="30.00 MiB"),
        ),
        "leak",
    ),
    "a launcher's exception, folded": (
        lines("CalledProcessError: Command '['python', 'train.py',", "'--epochs=3']' died with <Signals.SIGKILL: 9>."),
        "host-memory",
    ),
    # --- figures that lie
    "a container hides the process": (
        lines(bar(0, 400), traceback(TRAIN, STEP, MLP), oom("896.00 MiB", used="0 bytes")),
        "capacity",
    ),
    "the process has 2**64 bytes": (
        lines(bar(0, 400), traceback(TRAIN, STEP, MLP), oom("448.00 MiB", used="17179869184.00 GiB")),
        "capacity",
    ),
    "folded within a figure's words": (
        lines(
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 9.00 GiB already",
            "allocated; 100.00 MiB free; 14.90 GiB reserved in total by PyTorch) If reserved memory is >> allocated",
        ),
        "fragmentation",
    ),
    # --- found, not explained
    "only signals": (lines("W0806 20:07 7 api.py:897] Sending process 4321 closing signal SIGTERM"), "?"),
    "only the watchdog": (
        lines(
            "[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL"
        ),
        "nccl-timeout",
    ),
    "illegal access": (
        lines(
            "terminate called after throwing an instance of 'c10::Error'",
            "  what():  CUDA error: an illegal memory access was encountered",
        ),
        "?",
    ),
    "segmentation fault": (
        lines("train.sh: line 3:  4321 Segmentation fault      (core dumped) python train.py"),
        "native-crash",
    ),
    "exit code -11": (lines("  exitcode  : -11 (pid: 4321)"), "native-crash"),
    "two devices": (
        lines(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        ),
        "two-devices",
    ),
    "one dtype on two devices": (
        lines(
            "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"
        ),
        "two-devices",
    ),
    "shapes": (
        lines("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x151936 and 896x151936)"),
        "shape-mismatch",
    ),
    "disk full": (lines("OSError: [Errno 28] No space left on device: './out/checkpoint-200'"), "disk-full"),
    # --- near misses
    "loss scale adapts": (
        lines(
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", losses(1, 3)
        ),
        None,
    ),
    "dtypes in prose": (
        lines("casting the adapter: expected BFloat16, found Float; both match the base after the cast", losses(1, 3)),
        None,
    ),
    "parts on the meta device": (
        lines("Some parameters are on the meta device because they were offloaded to the cpu and disk.", losses(1, 3)),
        None,
    ),
}
