"""Every out-of-memory text that CUDA, torch and the libraries around it have had.

torch's own message changed with 1.4 (cached → reserved), 2.1 (sentences, and "capacty"), 2.9 (PYTORCH_ALLOC_CONF); its
async backend, MPS and XPU have their own. What their figures say is read in `oom_figures`.
"""

from __future__ import annotations

from vramwise.diagnosis.read.texts import failure

_NCCL_OOM = r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:malloc|calloc)"
_NCCL_SHM = r"Error while creating shared memory segment|Call to posix_fallocate failed"

OOM_TEXTS = (
    failure("absurd-size", "more than 1EB", r"(?:CUDA|HIP) out of memory\. Tried to allocate more than 1EB memory"),
    failure(
        "fsdp-clone-oom",
        "Failed to clone() tensor",
        r"Failed to clone\(\) tensor with name (?P<name>[\w.]{1,120}?)\.? .{0,500}?(?P<oom>CUDA out of memory)",
        anywhere=True,
    ),
    failure("cuda-oom", "out of memory", r"(?:CUDA|HIP|XPU|MUSA|NPU) out of memory(?:\. Tried to allocate|\.?\s*$)"),
    # torch's C++ warns before it raises; where the exception was lost, the warning is all there is.
    failure(
        "cuda-oom-warning",
        "failed with OOM on device",
        r"memory allocation failed with OOM on device \d+ while trying to allocate \d+ bytes",
        anywhere=True,
    ),
    failure("cuda-oom", "out of memory", r"MPS backend out of memory \("),
    failure(
        "cuda-oom", "Allocation on device", r"Allocation on device \d* ?would exceed allowed memory\. \(out of memory\)"
    ),
    failure("cuda-oom", "Allocation on device", r"Allocation on device\s*$"),
    failure(
        "nccl-oom",
        "NCCL",
        rf"NCCL WARN (?:{_NCCL_OOM})",
        anywhere=True,
    ),
    # torch quotes NCCL's last warning below its own message, on a line of its own.
    failure("nccl-oom", "Cuda failure", rf"^(?:Last error:\s*)?(?:{_NCCL_OOM})"),
    failure("nccl-oom", "Failed to CUDA", rf"^(?:Last error:\s*)?(?:{_NCCL_OOM})"),
    failure("nccl-shm", "NCCL", rf"NCCL WARN (?:{_NCCL_SHM})", anywhere=True),
    failure("nccl-shm", "shared memory segment", rf"^(?:Last error:\s*)?(?:{_NCCL_SHM})"),
    failure(
        "bnb-oom", "out of memory at line", r"(?:Error|CUDA error:?) out of memory at line \d+ in file", anywhere=True
    ),
    failure("cublas-oom", "CUBLAS_STATUS_ALLOC_FAILED", r"(?:CUDA error: |cuBLAS error: )?CUBLAS_STATUS_ALLOC_FAILED"),
    failure("cublas-oom", "CUBLAS_STATUS_NOT_INITIALIZED", r"CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling"),
    failure("cublas-oom", "CUDNN_STATUS_ALLOC_FAILED", r"(?:cuDNN error: )?CUDNN_STATUS_ALLOC_FAILED"),
    failure("cublas-oom", "CUDNN_STATUS_NOT_INITIALIZED", r"cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    failure("cublas-oom", "cublas runtime error", r"cublas runtime error : resource allocation failed"),
    # vLLM: its share of the card at start, what is left for its cache, and its own allocator of memory that sleeps.
    failure(
        "vllm-share",
        "less than desired GPU memory",
        r"Free memory on device(?: [\w:]{1,20})? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than "
        r"desired GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
    ),
    failure("vllm-cache", "cache blocks", r"No available memory for the cache blocks"),
    failure("vllm-cache", "max seq len", r"(?:The|To serve .{1,80}) model'?s'?s? max seq len \(.{1,200}KV cache"),
    failure(
        "vllm-cumem",
        "cumem_allocator",
        r"(?i:cuda error): out of memory at \S{0,200}cumem_allocator\.cpp",
    ),
    failure("driver-oom", "out of memory", r"CUDA (?:driver )?error: (?:\w+: )?out of memory"),
    failure("driver-oom", "out of memory", r"^CUDA error \d+ at [^\s:]{1,200}:\d+: out of memory"),
    failure("driver-oom", "HIP_ERROR_OutOfMemory", anywhere=True),
    failure(
        "driver-oom",
        "cudaGetDeviceCount",
        r"Unexpected error from cudaGetDeviceCount\(\)\..{0,200}Error 2: out of memory",
        anywhere=True,
    ),
    failure("driver-oom", "CUDA_ERROR_OUT_OF_MEMORY", r"CUDA_ERROR_OUT_OF_MEMORY", anywhere=True),
    failure("driver-oom", "cudaErrorMemoryAllocation", r"cudaErrorMemoryAllocation"),
    failure(
        "kernel-shared-memory",
        "out of resource",
        r"(?:(?<![\w.])[\w.]{0,80}OutOfResources: )?out of resources?: shared memory(?:, )?"
        r"Required: (?P<required>\d+)(?:, )?Hardware limit: (?P<limit>\d+)",
        anywhere=True,
    ),
    failure("does-not-fit", "dispatched on the CPU", r"Some modules are dispatched on the CPU or the disk"),
    # Its name alone, whatever follows.
    failure("cuda-oom", "OutOfMemoryError", r"^(?:torch\.(?:cuda\.)?)?OutOfMemoryError\b"),
    failure("cuda-oom", "OutOfMemoryError", r"(?<![\w.])(?:torch\.(?:cuda\.)?)?OutOfMemoryError: "),
    failure("cuda-oom", "OutOfMemoryError", r"^(?:ray\.exceptions\.)?RayTaskError\(OutOfMemoryError\)"),
)
