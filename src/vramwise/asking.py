"""`fit`: what is asked of the search, checked first: the card, the words, the keys. A mistake is told, not searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from vramwise.errors import VramwiseError
from vramwise.fitting import fit
from vramwise.foreseeing import opened
from vramwise.options import FitOptions, Options, PredictOptions
from vramwise.subject import Source, Subject
from vramwise.variants.axes import ALLOW
from vramwise.variants.search.result import Fit

Progress = Callable[[str], None]


def open_for_fit(source: Source, options: Options, ask: FitOptions) -> Subject:
    """The subject of a fit, with the lengths of its data."""
    return opened(source, options, PredictOptions(model=ask.model, online=ask.online))


def fitted(subject: Subject, ask: FitOptions | None = None, progress: Progress | None = None) -> Fit:
    """The fastest variant that fits; a VramwiseError where the question makes no sense."""
    ask = ask or FitOptions()
    if subject.target.gpu is None and ask.limit_bytes is None:
        raise VramwiseError(
            "no card is named and this machine has none: --gpu NAME or SIZE says which it must fit, such as --gpu "
            "rtx-4090 or --gpu 24GB; `vramwise gpus` lists them"
        )
    if subject.model is None:
        raise VramwiseError(subject.model_missing)
    _refuse_unknown("--allow", ask.allow, ALLOW)
    for key in ask.keep:
        unknown = subject.trainer.key_unknown(key, subject.target.stack)
        if unknown:
            raise VramwiseError(f"--keep {key}: {unknown}")
    return fit(
        subject,
        allow=ask.allow,
        keep=ask.keep,
        margin_bytes=ask.margin_bytes,
        limit_bytes=ask.limit_bytes,
        maximise=ask.maximise,
        progress=progress,
    )


def _refuse_unknown(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for word in given:
        if word not in names:
            close = get_close_matches(word.lower(), names, n=2)
            hint = f"did you mean {' or '.join(close)}?" if close else f"the words are {', '.join(names)}"
            raise VramwiseError(f"{option} {word}: there is no such word: {hint}")
