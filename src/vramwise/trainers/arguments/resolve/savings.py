"""Resolves the optimizer, compilation, cache emptying, and Liger's kernels as transformers applies them."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.trainers.arguments.values import Arguments

# What `_apply_liger_kernel_to_instance` switches on unless liger_kernel_config says otherwise, except the loss.
_LIGER_KEYS = {"rope": "rope", "rms_norm": "rms_norm", "swiglu": "glu_activation", "geglu": "glu_activation"}


def resolve_optimizer(args: Arguments) -> None:
    """Fill optimizer and max_grad_norm."""
    name = args.value("optim")
    if args.value("adafactor") is True:  # the older key of transformers 4
        args.derive("optimizer", "adafactor", "adafactor is on", key="adafactor")
    else:
        args.put("optimizer", "optim", name if isinstance(name, str) else args.words.default("optim"))
    norm = args.value("max_grad_norm")
    args.put("max_grad_norm", "max_grad_norm", float(norm) if isinstance(norm, int | float) else 0.0)


def resolve_savers(args: Arguments) -> None:
    """Fill torch_compile, empty_cache_steps, collect_steps, liger and liger_before_build."""
    _compiles(args)
    steps = args.value("torch_empty_cache_steps")
    args.put("empty_cache_steps", "torch_empty_cache_steps", steps if isinstance(steps, int) and steps > 0 else None)
    args.derive("collect_steps", None, "no garbage collection by steps")
    used = liger_kernels(args)
    why = "use_liger_kernel replaces them in the built model" if used else "no Liger kernel is in use"
    args.derive("liger", used, why, key="use_liger_kernel")
    args.derive("liger_before_build", False, "transformers applies Liger to the built model")


def liger_kernels(args: Arguments) -> tuple[str, ...]:
    """Return the Liger kernels in use besides the loss."""
    if not args.value("use_liger_kernel"):
        return ()
    chosen = args.value("liger_kernel_config")
    chosen = chosen if isinstance(chosen, Mapping) else {}
    return tuple(dict.fromkeys(name for key, name in _LIGER_KEYS.items() if chosen.get(key, True)))


def liger_loss(args: Arguments) -> bool:
    """Return whether Liger's fused loss, which needs no logits, is requested."""
    chosen = args.value("liger_kernel_config")
    chosen = chosen if isinstance(chosen, Mapping) else {}
    return bool(args.value("use_liger_kernel")) and bool(chosen.get("fused_linear_cross_entropy", True))


def _compiles(args: Arguments) -> None:
    mode, backend = args.value("torch_compile_mode"), args.value("torch_compile_backend") or "inductor"
    args.derive("compile_mode", mode or "default" if backend == "inductor" else str(backend), "torch.compile's mode")
    for key in ("torch_compile_mode", "torch_compile_backend"):
        if args.value(key) is not None and not args.value("torch_compile"):
            args.derive("torch_compile", True, f"{key} turns it on", key=key)
            return
    args.put("torch_compile", "torch_compile", bool(args.value("torch_compile")))
