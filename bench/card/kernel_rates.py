"""Rates of single kernels on a card: products, attention, streams, dequantising, optimizers, copies, launches.

python kernel_rates.py OUT.json [PART ...]     (needs torch with CUDA; bitsandbytes where it is there)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

ROWS: list[dict[str, Any]] = []
BF16 = torch.bfloat16


def seconds(work: Callable[[], Any], least: float = 0.02) -> float:
    """One call's time on the device, the queue kept full."""
    work()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    count = 4
    while True:
        start.record()
        for _ in range(count):
            work()
        end.record()
        torch.cuda.synchronize()
        spent = start.elapsed_time(end) / 1e3
        if spent > least:
            return spent / count
        count *= 3


def note(family: str, spent: float, **dims: Any) -> None:
    """Keep one rate."""
    ROWS.append({"family": family, **dims, "us": round(spent * 1e6, 2)})


def products() -> None:
    """Matrix products of the sizes that models have."""
    for n, k in [(2048, 2048), (8192, 2048), (4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096), (896, 896)]:
        for m in (512, 1024, 2048, 4096, 8192, 16384):
            a, b = torch.randn(m, k, device="cuda", dtype=BF16), torch.randn(n, k, device="cuda", dtype=BF16)
            note("matmul", seconds(lambda a=a, b=b: a @ b.t()), m=m, n=n, k=k, dtype="bf16")
    for m, n, k in [(2048, 16, 4096), (8192, 16, 4096), (2048, 4096, 16), (8192, 4096, 16), (16, 4096, 8192)]:
        a, b = torch.randn(m, k, device="cuda", dtype=BF16), torch.randn(n, k, device="cuda", dtype=BF16)
        note("matmul", seconds(lambda a=a, b=b: a @ b.t()), m=m, n=n, k=k, dtype="bf16")
    for m in (1024, 4096, 16384):
        a, b = torch.randn(m, 4096, device="cuda", dtype=BF16), torch.randn(128256, 4096, device="cuda", dtype=BF16)
        note("matmul", seconds(lambda a=a, b=b: a @ b.t()), m=m, n=128256, k=4096, dtype="bf16")
    for m, n, k in [(2048, 4096, 4096), (2048, 16, 4096), (8192, 4096, 16)]:
        a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        note("matmul", seconds(lambda a=a, b=b: a @ b.t()), m=m, n=n, k=k, dtype="fp32")


def attention() -> None:
    """Fused attention, both ways."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    backends["efficient"] = SDPBackend.EFFICIENT_ATTENTION
    for name, backend in backends.items():
        for rows, heads, tokens, width in [
            (1, 32, 2048, 128),
            (4, 32, 2048, 128),
            (2, 32, 4096, 128),
            (8, 14, 1024, 64),
        ]:
            q, k, v = (
                torch.randn(rows, heads, tokens, width, device="cuda", dtype=BF16, requires_grad=True) for _ in "qkv"
            )
            with sdpa_kernel(backend):
                forward = seconds(
                    lambda q=q, k=k, v=v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                )
                out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                grad = torch.randn_like(out)
                back = seconds(
                    lambda out=out, grad=grad, q=q, k=k, v=v: torch.autograd.grad(
                        out, (q, k, v), grad, retain_graph=True
                    )
                )
            note("attention", forward, kernel=name, way="forward", rows=rows, heads=heads, tokens=tokens, width=width)
            note("attention", back, kernel=name, way="backward", rows=rows, heads=heads, tokens=tokens, width=width)


def streams() -> None:
    """Kernels that memory's speed decides."""
    for million in (0.5, 2, 8, 32, 128):
        count = int(million * 1e6)
        a, b = (torch.randn(count, device="cuda", dtype=BF16) for _ in "ab")
        wide = torch.randn(count, device="cuda")
        note("stream", seconds(lambda a=a, b=b: a + b), op="add", bytes=6 * count)
        note("stream", seconds(lambda a=a: functional.silu(a)), op="silu", bytes=4 * count)
        note("stream", seconds(lambda a=a: a.float()), op="widen", bytes=6 * count)
        note("stream", seconds(lambda wide=wide: wide.pow(2)), op="square", bytes=8 * count)
        rows = wide.view(-1, 500)
        note("stream", seconds(lambda rows=rows: rows.mean(-1)), op="mean", bytes=4 * count)
        note("stream", seconds(lambda a=a: a.zero_()), op="zero", bytes=2 * count)
    logits = torch.randn(4096, 128256, device="cuda")
    note("stream", seconds(lambda: functional.log_softmax(logits, -1)), op="log_softmax", bytes=8 * logits.numel())


def dequantise() -> None:
    """4-bit weights made bf16."""
    try:
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    except Exception as error:
        print("no bitsandbytes:", error)
        return
    for n, k in [(2048, 2048), (4096, 4096), (14336, 4096)]:
        weight = torch.randn(n, k, device="cuda", dtype=BF16)
        for nested in (False, True):
            packed, state = quantize_4bit(weight, quant_type="nf4", compress_statistics=nested)
            spent = seconds(lambda packed=packed, state=state: dequantize_4bit(packed, state))
            note("dequantise", spent, elements=n * k, nested=nested)


def optimizers() -> None:
    """Steps of whole optimizers, and clipping."""
    for million in (10, 100, 400):
        for kind in (BF16, torch.float32):
            weights = [
                torch.nn.Parameter(torch.randn(int(million * 1e4), device="cuda", dtype=kind)) for _ in range(100)
            ]
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            for words in ({"fused": True}, {"foreach": True}):
                step = torch.optim.AdamW(weights, lr=1e-5, **words).step
                note("optimizer", seconds(step), million=million, dtype=str(kind), **words)
            note(
                "optimizer",
                seconds(lambda w=weights: torch.nn.utils.clip_grad_norm_(w, 1.0)),
                million=million,
                dtype=str(kind),
                clip=True,
            )
    try:
        import bitsandbytes as bnb

        for million in (10, 100):
            weights = [torch.nn.Parameter(torch.randn(int(million * 1e4), device="cuda")) for _ in range(100)]
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            for name in ("AdamW8bit", "PagedAdamW8bit", "PagedAdamW32bit"):
                note("optimizer", seconds(getattr(bnb.optim, name)(weights, lr=1e-5).step), million=million, name=name)
    except Exception as error:
        print("no bitsandbytes optimizer:", error)


def copies() -> None:
    """Between host and card."""
    for mib in (1, 16, 256):
        host = torch.empty(mib << 20, dtype=torch.uint8, pin_memory=True)
        card = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
        note("copy", seconds(lambda host=host, card=card: card.copy_(host, non_blocking=True)), way="in", mib=mib)
        note("copy", seconds(lambda host=host, card=card: host.copy_(card, non_blocking=True)), way="out", mib=mib)


def launches() -> None:
    """The host's time a call, with kernels so small that the queue is never full."""
    a = torch.randn(16, 16, device="cuda", dtype=BF16)
    linear = torch.nn.Linear(16, 16, device="cuda", dtype=BF16, bias=False)
    leaf = torch.randn(16, 16, device="cuda", dtype=BF16, requires_grad=True)

    def host(name: str, work: Callable[[], Any], kernels: int = 1) -> None:
        for _ in range(200):
            work()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(1000):
            work()
        spent = time.perf_counter() - start
        torch.cuda.synchronize()
        whole = time.perf_counter() - start
        note("launch", spent / 1000, op=name, kernels=kernels, drained_us=round(whole * 1e3, 2))

    with torch.no_grad():
        host("add", lambda: a + a)
        host("matmul", lambda: a @ a)
        host("linear module", lambda: linear(a))
    host("linear module with graph", lambda: linear(leaf))

    def chain() -> None:
        x = leaf
        for _ in range(100):
            x = x * 1.5
        x.backward(a)

    def forward_only() -> None:
        x = leaf
        for _ in range(100):
            x = x * 1.5

    host_calls = [("100 mul forward", forward_only, 100), ("100 mul forward and backward", chain, 200)]
    for name, work, kernels in host_calls:
        for _ in range(5):
            work()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            work()
        torch.cuda.synchronize()
        note("launch", (time.perf_counter() - start) / 20, op=name, kernels=kernels)
    note("launch", seconds(lambda: a + a), op="add on the device", kernels=1)


if __name__ == "__main__":
    for part in (launches, products, attention, streams, dequantise, optimizers, copies):
        if sys.argv[2:] and part.__name__ not in sys.argv[2:]:
            continue
        try:
            part()
        except Exception as error:
            print(part.__name__, "stopped:", error)
    with Path(sys.argv[1]).open("w") as file:
        json.dump({"card": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": ROWS}, file, indent=0)
    print(len(ROWS), "rates")
