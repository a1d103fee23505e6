"""A fake H200 for Inductor: imported before torch, it lets a CPU build of torch compile for CUDA without running it.

What Inductor would run is in `wrappers`: (backward?, wrapper code), in the order in which the graphs were compiled.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

for name in ("FX_GRAPH_CACHE", "AUTOGRAD_CACHE"):
    os.environ[f"TORCHINDUCTOR_{name}"] = "0"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
HERE = Path(__file__).resolve().parent
TORCH = Path(importlib.util.find_spec("torch").origin).parent  # type: ignore[union-attr, arg-type]


def _load() -> None:
    built = Path(tempfile.gettempdir()) / f"fake_cuda_{os.getuid()}.so"
    source = HERE / "fake_cuda.cpp"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        include, libraries = TORCH / "include", TORCH / "lib"
        flags = ["-std=c++20", "-O1", "-shared", "-fPIC", f"-I{include}", f"-L{libraries}", "-ltorch_cpu", "-lc10"]
        subprocess.run(["g++", str(source), "-o", str(built), *flags], check=True)
    for library in (TORCH / "lib/libc10.so", TORCH / "lib/libtorch_cpu.so", built):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


_load()

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch._functorch.config as functorch_config  # noqa: E402
import torch._inductor.config as inductor_config  # noqa: E402
import torch._inductor.fx_passes.joint_graph as joint_graph  # noqa: E402
import torch._inductor.fx_passes.post_grad as post_grad  # noqa: E402
import torch.cuda.random as cuda_random  # noqa: E402
import triton  # noqa: E402
from torch._dynamo.device_interface import CudaInterface  # noqa: E402
from torch._inductor.graph import GraphLowering  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

inductor_config.fx_graph_cache = False
functorch_config.enable_autograd_cache = False
functorch_config.force_non_lazy_backward_lowering = True
wrappers: list[tuple[bool, str]] = []


class _Card:
    name, type, index, uuid, gcnArchName = "NVIDIA H200", "cuda", 0, "x", ""  # noqa: N815
    major, minor, cc, warp_size, multi_processor_count = 9, 0, 90, 32, 132
    total_memory, L2_cache_size = 140 * 2**30, 60 * 2**20
    regs_per_multiprocessor, max_threads_per_multi_processor, max_threads_per_block = 65536, 2048, 1024
    shared_memory_per_block, shared_memory_per_block_optin = 49152, 232448


class _Generator(torch.Generator):
    device = property(lambda _: torch.device("cuda", 0))  # type: ignore[assignment]

    def clone_state(self) -> Any:
        return _Generator()

    graphsafe_get_state = clone_state


class _Driver:
    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        return 0

    @staticmethod
    def is_active() -> bool:
        return True


@contextmanager
def _nothing(*_args: Any) -> Any:
    yield


def _answers(value: Any) -> Any:
    return lambda *_args, **_kwargs: value


class _Module:
    __file__ = __file__

    def call(self, _args: Any) -> Any:
        raise NotRunError


class NotRunError(RuntimeError):
    """Compiled code was called: there is no card to run it."""


def _captured(graph: Any, *_args: Any) -> _Module:
    code = graph.codegen()[0]
    wrappers.append((graph.is_backward, getattr(code, "value", code)))
    return _Module()


class _OnCpu(TorchDispatchMode):
    """Constants of one element are folded on the CPU."""

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        args = tuple(torch.device("cpu") if isinstance(one, torch.device) else one for one in args)
        return function(*args, **kwargs)


def _install() -> None:
    triton.runtime.driver.set_active(_Driver())
    joint_graph.lazy_init(torch.device("cpu"))
    post_grad.lazy_init(torch.device("cpu"))
    joint_graph.lazy_init = post_grad.lazy_init = _answers(None)
    values: dict[str, Any] = {
        "is_available": True,
        "current_device": 0,
        "device_count": 1,
        "get_compute_capability": 90,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "synchronize": None,
        "is_bf16_supported": True,
        "get_device_properties": _Card(),
        "get_raw_stream": 0,
    }
    for name, value in values.items():
        setattr(CudaInterface, name, staticmethod(_answers(value)))
        setattr(torch.cuda, name, _answers(value))
    CudaInterface.device = _nothing
    CudaInterface.Worker.get_device_properties = staticmethod(_answers(_Card()))
    CudaInterface.Worker.current_device = staticmethod(_answers(0))
    more = {"get_device_capability": (9, 0), "get_device_name": _Card.name, "is_initialized": False}
    more |= dict.fromkeys(("_exchange_device", "_maybe_exchange_device", "_cuda_setDevice"), 0)
    more |= {"_is_compiled": True, "_lazy_init": None, "set_device": None, "set_rng_state": None}
    for name, value in more.items():
        setattr(torch.cuda, name, _answers(value))
    torch.cuda._DeviceGuard = _nothing
    torch.cuda.default_generators = (_Generator(),)
    torch.cuda._get_generator = lambda _device: torch.cuda.default_generators[0]
    cuda_random.get_rng_state = torch.cuda.get_rng_state = _answers(torch.empty(0, dtype=torch.uint8))
    cuda_random.set_rng_state = torch.cuda.set_rng_state
    torch.version.cuda = "13.0"
    deduce = joint_graph.UniformValueConstantFolder._deduce_value

    def folded(self: Any, node: Any) -> Any:
        with _OnCpu():
            return deduce(self, node)

    joint_graph.UniformValueConstantFolder._deduce_value = folded
    GraphLowering.compile_to_module = GraphLowering._compile_to_module = _captured


_install()
