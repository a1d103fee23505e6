"""What fp8 or torch.compile costs and brings: the run compared with the same run in bf16, or uncompiled."""

from __future__ import annotations

from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.units import readable
from vramwise.variants.prediction import Prediction

# Smaller differences are not named.
_ALIKE = 0.005


def against_plain(subject: Subject) -> str:
    """Return one sentence, with memory and step time where both runs are predicted; "" without fp8 and torch.compile.

    fp8 is compared with the run in bf16 that compiles as this one does.
    """
    run = subject.run
    fp8 = run.precision.compute == "fp8"
    if not (fp8 or run.kernels.torch_compile) or subject.model is None or subject.stops:
        return ""
    if fp8 and run.target.gpu is not None and not run.target.gpu.fp8:
        return ""
    plain = subject.with_run(run.changed(precision="bf16") if fp8 else run.changed(torch_compile=False))
    name, other = ("fp8", "in bf16") if fp8 else ("torch.compile", "uncompiled")
    try:
        now, then = subject.prediction(on_card=False), plain.prediction(on_card=False)
    except VramwiseError:
        return ""
    if now.bounds is not None or then.bounds is not None:
        return f"what {name} costs and brings against the same run {other} is not known: {_why(now, then)}"
    before, after = plain.speed(), subject.speed()
    more = now.needs.highest_reserved_bytes - then.needs.highest_reserved_bytes
    alike = abs(more) < _ALIKE * then.needs.highest_reserved_bytes
    memory = "as much" if alike else f"{readable(abs(more))} {'more' if more > 0 else 'less'}"
    if before is None or after is None:
        return f"with {name} it reserves {memory} {'as' if alike else 'than'} {other}"
    faster = after.tokens_per_second / before.tokens_per_second
    return f"with {name} it trains about {faster:.2f} × as fast as {other}, and reserves {memory}"


def _why(now: Prediction, then: Prediction) -> str:
    found = now.bounds or then.bounds
    assert found is not None
    if found.names == ("torch.compile",):
        return "memory is a range, since what torch.compile fuses here is decided when it compiles"
    return f"memory is a range, since not all is modelled ({', '.join(found.names)})"
