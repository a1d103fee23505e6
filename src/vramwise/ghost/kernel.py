"""One kernel that a ghost run stands for: what it computes and moves, and what the host does before it."""

from __future__ import annotations


class Kernel:
    """One launch. `dims`: (batch, m, n, k) of a product; `flops` of products and attention; bytes of all.

    `by`: who launches it: "forward" (Python, op by op), "backward" (autograd's own thread), "library" (a library's
    Python code), "triton" (Triton's launcher), "copy" (a hook that sends a tensor elsewhere). `count`: so many launches
    that are alike, or a part of one that takes many tensors. What the host goes through before it: `ops`, views and
    autograd's nodes; `calls`, modules; `hooks` of saved tensors, and
    parameters in a list of them; `functions`, autograd's functions that are written in Python;
    `lines`, lines of its log; `checkpoints`, checkpointed blocks that begin, or begin again.
    `about`: the parameter that it is for, where its mark does not say. `cudnn`: attention by cuDNN's kernel.
    `blocks`: so many blocks of threads do the work, where they may be too few for the whole card; 0: enough. `turns`:
    rows, or groups of them, that blocks, one a multiprocessor, go through one after the other. `adds`: a product is
    added to what is there.
    """

    __slots__ = (
        "about",
        "adds",
        "blocks",
        "by",
        "calls",
        "checkpoints",
        "count",
        "cudnn",
        "dims",
        "dtype",
        "family",
        "flops",
        "functions",
        "hooks",
        "lines",
        "ops",
        "read",
        "tag",
        "turns",
        "written",
    )

    def __init__(self, family: str, read: float, written: float, by: str, tag: int) -> None:
        self.family = family
        self.read = read
        self.written = written
        self.by = by
        self.tag = tag
        self.dims: tuple[int, int, int, int] = (0, 0, 0, 0)
        self.dtype = ""
        self.flops = 0.0
        self.count = 1.0
        self.about = ""
        self.adds = False
        self.blocks = 0
        self.turns = 0
        self.cudnn = False
        self.ops = 0
        self.calls = 0
        self.hooks = 0
        self.functions = 0
        self.lines = 0
        self.checkpoints = 0
