"""Whether NCCL lets two ranks share this card, and how fast it moves data between them: one JSON line.

    python nccl_probe.py        exit code 0: it does

See `rank_start.py` for how. The line holds NCCL's release, seconds until the first exchange, and MiB/s of a broadcast
and an all-reduce of 64 MiB.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

LONGEST_S = 45
SIZE = 64 << 20
SLOWEST = 100  # MiB/s: below it runs would not end in their time


def rank() -> None:
    """One of the two."""
    import rank_start
    import torch
    import torch.distributed as dist

    rank_start.share_one_card()
    began = time.time()
    dist.init_process_group("nccl")
    data = torch.full((SIZE // 4,), float(dist.get_rank() + 1), device="cuda")
    rates = {}
    dist.all_reduce(data[:4])
    torch.cuda.synchronize()
    first = time.time() - began
    for name, call in (("broadcast", lambda: dist.broadcast(data, 0)), ("all_reduce", lambda: dist.all_reduce(data))):
        started = time.time()
        call()
        torch.cuda.synchronize()
        rates[name] = round(SIZE / 2**20 / (time.time() - started), 1)
    # 1 + 2 = 3 in the first four, then rank 0's values are those of both, and their sum is twice them
    right = data[0].item() == 6 and data[-1].item() == 2
    if dist.get_rank() == 0:
        line = {"nccl": list(torch.cuda.nccl.version()), "first_s": round(first, 2), "mib_s": rates, "right": right}
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()
    sys.exit(not right or min(rates.values()) < SLOWEST)


def main() -> None:
    """Start both; a hang is a no."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"RANKS_CUDA": "nccl", "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}
    line = [sys.executable, __file__]
    ranks = [subprocess.Popen(line, env={**os.environ, **common, "RANK": str(number)}) for number in range(2)]
    end = time.time() + LONGEST_S
    while time.time() < end and any(one.poll() is None for one in ranks) and not any(one.poll() for one in ranks):
        time.sleep(0.2)
    codes = [one.poll() for one in ranks]
    for one in ranks:
        if one.poll() is None:
            one.kill()
    sys.exit(any(code != 0 for code in codes))


if __name__ == "__main__":
    rank() if os.environ.get("RANK") else main()
