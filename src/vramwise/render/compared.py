"""A predicted run against a recorded one, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from vramwise.recordings.compared import LEAST_BYTES, Comparison, Difference, Request
from vramwise.units import mib, readable

_SHOWN, _ROWS = 3, 8
_MOST = 20


def comparison_text(found: Comparison) -> list[str]:
    """Return the conclusion, then the first differences with what each request is for."""
    what = f"requests of {readable(LEAST_BYTES)} or more in step {found.step} of the prediction"
    if not found.differences:
        return [f"the recording has all {found.requests:,} {what}, in the same order and with the same sizes"]
    count = len(found.differences)
    places = "1 place differs" if count == 1 else f"{count:,} places differ"
    lines = [f"the recording has {found.found:,} of {found.requests:,} {what}; {places}"]
    for difference in found.differences[:_SHOWN]:
        lines += ["", *_difference(difference)]
    return lines if count <= _SHOWN else [*lines, "", f"… and {count - _SHOWN:,} more places"]


def _difference(difference: Difference) -> list[str]:
    lines = [f"at request {difference.number + 1:,} of the step:"]
    pairs = list(zip_longest(difference.predicted, difference.recorded))
    rows = [("predicted", "recorded"), *((_shown(one), _shown(other)) for one, other in pairs[:_ROWS])]
    width = max(len(left) for left, _ in rows)
    lines += [f"  {left.ljust(width)}   {right}".rstrip() for left, right in rows]
    return lines if len(pairs) <= _ROWS else [*lines, f"  … {len(pairs) - _ROWS:,} more"]


def _shown(request: Request | None) -> str:
    return "—" if request is None else f"{mib(request.size_bytes):>10}  {request.phase}: {request.label}"


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return the comparison; of many differences the first, and the first requests of each."""
    return {
        "step": found.step,
        "least_bytes": LEAST_BYTES,
        "requests": found.requests,
        "requests_found": found.found,
        "differences": len(found.differences),
        "first_differences": [
            {
                "request": one.number + 1,
                "predicted": _requests(one.predicted),
                "recorded": _requests(one.recorded),
                "predicted_count": len(one.predicted),
                "recorded_count": len(one.recorded),
            }
            for one in found.differences[:_MOST]
        ],
    }


def _requests(requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [request._asdict() for request in requests[:_MOST]]
