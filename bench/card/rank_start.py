"""Makes this process one of several ranks that share one card; RANK and WORLD_SIZE are set, nothing is started.

Objects, barriers and small tensors (up to 4096 numbers) go through gloo on the host: what ranks agree on is true. On
the card either nothing is moved (RANKS_CUDA=fake: a rank's memory is that of a real one, less NCCL's own; values are
not), or gloo moves it through the host (RANKS_CUDA=gloo, for DDP, whose reducer waits for results), or NCCL does as it
would between machines (RANKS_CUDA=nccl): each rank gives itself out as another host, so that NCCL, which refuses two
ranks of a host on one card, sends everything through a socket. Then everything is as in a real run.
"""

from __future__ import annotations

import os
from typing import Any

SMALL = 4096


def share_one_card() -> None:
    """Replace what starts process groups and moves small tensors."""
    import torch
    import torch.distributed as dist
    import torch.distributed.device_mesh as mesh
    import torch.testing._internal.distributed.fake_pg

    cuda = os.environ["RANKS_CUDA"]
    if cuda == "nccl":
        _be_another_host()
        return
    original, gather = dist.init_process_group, dist.all_gather

    def begin(backend: Any = None, *arguments: Any, **words: Any) -> Any:
        words.pop("device_id", None)
        words.pop("backend", None)
        print("process group for", backend, "->", f"cpu:gloo,cuda:{cuda}", flush=True)
        return original(f"cpu:gloo,cuda:{cuda}", *arguments, **words)

    def barrier(*_arguments: Any, **_words: Any) -> None:
        if dist.is_initialized():
            dist.all_reduce(torch.zeros(1))

    mesh.init_process_group = begin  # type: ignore[attr-defined]
    _put("init_process_group", begin)
    _put("barrier", barrier)
    if cuda == "fake":
        for name in ("all_reduce", "broadcast"):
            _put(name, _through_host(getattr(dist, name)))
        _put("all_gather", _gathered(dist.all_gather))
        _put("gather", _to_one(dist.gather))
    # gloo writes into views of the output, which autograd does not allow outside of no_grad
    _put("all_gather_into_tensor", _gathered_flat(dist.all_gather_into_tensor, gather))
    if torch.cuda.is_available():
        torch.cuda.set_device(0)


def _be_another_host() -> None:
    import torch

    if os.environ["WORLD_SIZE"] != "1":
        os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
        os.environ |= {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
    if torch.cuda.is_available():
        torch.cuda.set_device(0)


def _put(name: str, call: Any) -> None:
    import torch.distributed as dist

    setattr(dist, name, call)
    setattr(dist.distributed_c10d, name, call)


def _is_small(tensor: Any, words: dict[str, Any]) -> bool:
    return tensor.device.type == "cuda" and tensor.numel() <= SMALL and not words.get("async_op")


def _through_host(call: Any) -> Any:
    def moved(tensor: Any, *arguments: Any, **words: Any) -> Any:
        if not _is_small(tensor, words):
            return call(tensor, *arguments, **words)
        host = tensor.cpu()
        call(host, *arguments, **words)
        tensor.copy_(host)
        return None

    return moved


def _gathered(call: Any) -> Any:
    def moved(tensors: Any, own: Any, *arguments: Any, **words: Any) -> Any:
        if not _is_small(own, words):
            return call(tensors, own, *arguments, **words)
        hosts = [tensor.cpu() for tensor in tensors]
        call(hosts, own.cpu(), *arguments, **words)
        for tensor, host in zip(tensors, hosts, strict=True):
            tensor.copy_(host)
        return None

    return moved


def _gathered_flat(call: Any, gather: Any) -> Any:
    def moved(output_tensor: Any, input_tensor: Any, *arguments: Any, **words: Any) -> Any:
        import torch

        small = _is_small(input_tensor, words) and input_tensor.numel()
        if not small:
            return call(output_tensor, input_tensor, *arguments, **words)
        with torch.no_grad():
            count = output_tensor.numel() // input_tensor.numel()
            hosts = [torch.empty_like(input_tensor, device="cpu") for _ in range(count)]
            gather(hosts, input_tensor.detach().cpu(), *arguments, **words)
            output_tensor.copy_(torch.stack(hosts).reshape(output_tensor.shape))
        return None

    return moved


def _to_one(call: Any) -> Any:
    def moved(tensor: Any, gather_list: Any = None, *arguments: Any, **words: Any) -> Any:
        if not _is_small(tensor, words):
            return call(tensor, gather_list, *arguments, **words)
        hosts = [one.cpu() for one in gather_list] if gather_list else None
        call(tensor.cpu(), hosts, *arguments, **words)
        for one, host in zip(gather_list or [], hosts or [], strict=True):
            one.copy_(host)
        return None

    return moved


def launched_by_accelerate(config: str) -> None:
    """The environment that `accelerate launch --config_file` gives its ranks; those of this rank stay."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    words = launch_command_parser().parse_args(["--config_file", config, "--main_process_port", "0", "train.py"])
    words, _, _ = _validate_launch_command(words)
    env = prepare_deepspeed_cmd_env(words)[1] if words.use_deepspeed else prepare_multi_gpu_env(words)
    kept = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
    os.environ.update({name: value for name, value in env.items() if name.startswith(kept)})
