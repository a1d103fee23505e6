"""The tool that searches for the fastest variant of a config that fits a card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from vramwise.errors import ConfigError, VramwiseError
from vramwise.mcp.arguments import Config, Gpus, TrainerName, Versions, next_call, options_of, plain
from vramwise.mcp.results import Fitted
from vramwise.opening.options import FitOptions, Text
from vramwise.render.fit_json import fit_json
from vramwise.types import Finding
from vramwise.variants.axes import ALLOW
from vramwise.verbs.fit import fit_source

# Omitted for variants other than the answer: it follows from their edits.
_LEFT_OUT = ("diff", "commands", "changes", "margin_bytes")
_WORDS = "; ".join(f"{word}: {meaning}" for word, meaning in ALLOW.items())


def fit_config(
    config: Config,
    gpu: Annotated[str, Field(description="The card to fit, e.g. rtx-4090, a100-80gb, or 24GB; see list_gpus.")],
    gpus: Gpus = 1,
    allow: Annotated[list[str], Field(description=f"Changes to the training to permit. {_WORDS}.")] = [],  # noqa: B006
    keep: Annotated[list[str], Field(description="Config keys that must not change.")] = [],  # noqa: B006
    versions: Versions = [],  # noqa: B006
    trainer: TrainerName = "",
    maximise: Annotated[
        str,
        Field(
            description=(
                "Find the largest value that fits instead of the fastest run: for the config's micro-batch, length or "
                "rank key, or for `model`."
            )
        ),
    ] = "",
) -> Fitted:
    """Find the fastest variant of a config that fits a card. Returns the full new text, its diff and alternatives.

    The training result stays the same unless `allow` permits more. If nothing fits, `opened` shows the effect of each
    `allow` value. With `maximise`, find the largest value of that key that fits. Takes a few seconds. Errors that
    would stop the run are fixed first where possible; `mistakes` lists the rest.
    """
    ask = FitOptions(allow=tuple(allow), keep=tuple(keep), maximise=maximise or None, online=False)
    try:
        report = fit_source(Text(config), options_of(gpu, gpus, versions, trainer), ask)
    except ConfigError:
        raise
    except VramwiseError as error:
        said = VramwiseError(str(error).replace("--max ", "maximise "))
        raise next_call(said, "correct gpu, allow, keep or maximise; call list_models for known models") from error
    found, shown = report.fit, plain(fit_json(report))
    after = found.best.writable if found.best is not None else None
    return Fitted(
        summary=shown["verdict"]["text"],
        fits=found.best is not None and not found.stops,
        changed=found.changed,
        config=after.file_text if after else config,
        diff=report.diff(found.best),
        best=shown["best"],
        mistakes=[one.rule for one in found.stops],
        original=_short(shown["original"]),
        alternatives=[_short(one) for one in shown["alternatives"]],
        closest=shown["closest"] and _short(shown["closest"]),
        opened=[_short(one) for one in shown["opened"]],
        smallest_card=shown["smallest_card"],
        next=_after(shown, found.stops, maximise),
    )


def _short(variant: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in variant.items() if key not in _LEFT_OUT}


def _after(shown: dict[str, Any], mistakes: Sequence[Finding], maximise: str) -> str:
    """Return the next call to make; if nothing fits, with the `allow` value that would help."""
    if mistakes:
        return f"correct this first: {mistakes[0].message}"
    if shown["best"] is not None:
        return "call check_config with the new text" if shown["verdict"]["changed"] else ""
    if maximise:
        return f"call fit_config without maximise: even the smallest {maximise} does not fit"
    helps = next((one["allow"] for one in shown["opened"] if one["fits"]), None)
    return f"call fit_config with allow={helps}" if helps else "call list_gpus for a larger card"
