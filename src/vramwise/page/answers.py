"""Answer the page's requests: one JSON request, one JSON answer, with the same verbs as the other interfaces.

Runs in the user's browser, where the worker calls `Answers.answer`, and natively in tests. Reads nothing but the
request; a user error is `{"ok": false, "error": one sentence}` with the line it is about.

What would make a run fit: a first answer from a few predictions, then the fastest that a search finds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vramwise import __version__
from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.errors import ConfigError, VramwiseError, describe_internal_error
from vramwise.opening.options import FitOptions, NewOptions, PredictOptions, Text
from vramwise.opening.subject import Subject
from vramwise.page import views
from vramwise.page.desk import Desk, Request, knobs_of, options_of, shaped
from vramwise.page.failures import diagnosed
from vramwise.page.views import ACTIONS, with_fields
from vramwise.render.fit_html import fit_body
from vramwise.render.fit_words import answer as fit_answer
from vramwise.render.fit_words import kind as fit_kind
from vramwise.render.fit_words import reasons as fit_reasons
from vramwise.render.json_text import json_text
from vramwise.render.new_text import further, verdict
from vramwise.render.prediction_html import prediction_page
from vramwise.render.verdict_text import EFFECTS, effect, state_of
from vramwise.types.actions import in_words_of
from vramwise.units import gib
from vramwise.variants.attempt import Attempt
from vramwise.variants.effort import DIAGNOSIS, Effort
from vramwise.variants.prediction import profile_of
from vramwise.verbs.check import Policy
from vramwise.verbs.fit import fit_source, repaired
from vramwise.verbs.fitting.ways_out import quick_way_out, way_out
from vramwise.verbs.fix import fix_subject
from vramwise.verbs.new import new
from vramwise.verbs.predict import predict as predict_subject

Progress = Callable[[int, int], None]
_COUNTS = ("rank", "sequence_len", "batch", "epochs")
_WORDS = ("method", "data_format")


class Answers:
    """Answers requests by their `ask`; keeps recent configs open, so that moving a slider gets quick answers."""

    def __init__(self) -> None:
        self._desk = Desk()
        self._asks: dict[str, Callable[[Request], dict[str, Any]]] = {
            "catalogue": lambda _: views.catalogue(__version__),
            "look": self._look,
            "weigh": self._weigh,
            "drag": self._drag,
            "ahead": self._drag,  # the same, for where a slider may go next
            "chart": lambda request: views.chart_view(views.predicted(self._desk.report(request))),
            "first-remedy": lambda request: first_remedy(self._desk.subject(request)),
            "cards": self._cards,
            "fix": self._fix,
            "fix-all": self._fix_all,
            "fix-errors": self._fix_errors,
            "report": self._report,
        }

    def answer(self, request: str, progress: Progress | None = None, data: bytes | None = None) -> str:
        """Return the answer to a JSON request.

        `data`: the bytes of a snapshot; `progress` is called during a search.
        """
        try:
            with in_words_of(ACTIONS):
                found = {"ok": True, **self._answered(shaped(json.loads(request)), progress, data)}
        except ConfigError as error:
            found = {"ok": False, "error": error.message, "line": error.line}
        except (VramwiseError, EditRefused) as error:
            found = {"ok": False, "error": str(error), "line": None}
        except Exception as error:
            found = {"ok": False, "error": describe_internal_error("the page", error), "line": None, "internal": True}
        return json_text(with_fields(found))

    def _answered(self, request: Request, progress: Progress | None, data: bytes | None) -> dict[str, Any]:
        if request.get("ask") == "fit":
            return self._fit(request, progress)
        if request.get("ask") == "remedy":
            return best_remedy(self._desk.subject(request), progress)
        if request.get("ask") == "start":
            return started(request, progress)
        if request.get("ask") == "diagnose":
            return diagnosed(request, data)
        return self._asks[request["ask"]](request)

    def _look(self, request: Request) -> dict[str, Any]:
        """Return the verdict, the findings at their lines, and the knobs, all from one prediction."""
        report, subject = self._desk.report(request), self._desk.subject(request)
        prediction = report.prediction
        said = views.no_verdict(report) if prediction is None else views.first_view(subject, prediction)
        return {
            **said,
            "text": subject.document.file_text,
            "trainer": subject.trainer.title,
            "findings": [views.finding_view(found, subject.document) for found in report.findings],
            "knobs": knobs_of(self._desk.as_written(request)),
        }

    def _weigh(self, request: Request) -> dict[str, Any]:
        """Return the verdict and findings as `predict` and `check` give them, with as many predictions as needed."""
        report, subject = self._desk.report(request, weighed=True), self._desk.subject(request)
        return {
            **views.verdict_view(subject, views.predicted(report)),
            "findings": [views.finding_view(found, subject.document) for found in report.findings],
        }

    def _drag(self, request: Request) -> dict[str, Any]:
        """Return only the verdict, for a slider that is still moving."""
        subject = self._desk.subject(request)
        prediction = subject.prediction(on_card=False)
        if prediction.fits is None:  # undecided: predict it on the card
            prediction = subject.prediction()
        return {**views.first_view(subject, prediction), "text": subject.document.file_text}

    def _cards(self, request: Request) -> dict[str, Any]:
        """Return the verdict for each of the usual cards."""
        prediction = views.predicted(self._desk.report(request))
        return {"cards": views.cards_view(self._desk.subject(request), prediction)}

    def _fix(self, request: Request) -> dict[str, Any]:
        """Return the text with one finding fixed. Raises VramwiseError if it has no fix."""
        subject = self._desk.subject(request)
        found = views.chosen(request.get("finding"), self._desk.report(request), subject.document)
        if found.fix is None:
            raise VramwiseError(f"{found.rule} has no fix: it is yours to decide")
        return {"text": apply_edits(subject.document, found.fix.edits).file_text}

    def _fix_all(self, request: Request) -> dict[str, Any]:
        """Return the text with every safe fix applied; with `unsafe` the others too."""
        fixed = fix_subject(self._desk.subject(request), Policy(predicts=True), unsafe=bool(request.get("unsafe")))
        return {
            "text": fixed.subject.document.file_text,
            "applied": [found.fix.title for found in fixed.applied if found.fix is not None],
            "refused": [f"{found.rule}: {why}" for found, why in fixed.refused],
        }

    def _fix_errors(self, request: Request) -> dict[str, Any]:
        """Return the text without the fixable errors that keep the run from starting."""
        after, fixed = repaired(self._desk.subject(request))
        return {
            "text": after.document.file_text,
            "applied": [found.fix.title for found in fixed if found.fix is not None],
        }

    def _fit(self, request: Request, progress: Progress | None) -> dict[str, Any]:
        """Return the fastest variant that fits: its text, its diff, the frontier."""
        source = Text(self._desk.subject(request).document.file_text)
        ask = FitOptions(allow=tuple(request.get("allow") or ()), online=False)
        report = fit_source(source, options_of(request.get("settings") or {}), ask, progress)
        best = report.fit.best
        after = best.writable if best is not None else None
        return {
            "state": state_of(fit_kind(report.fit)),
            "headline": fit_answer(report.fit),
            "reasons": list(fit_reasons(report)),
            "changed": report.fit.changed,
            "text": after.file_text if after is not None else source,
            "commands": [*best.commands, *best.by_hand] if best is not None else [],
            "diff": report.diff(best),
            "markup": fit_body(report),
        }

    def _report(self, request: Request) -> dict[str, Any]:
        """Return the whole report as one HTML file, as `predict --html` writes it."""
        report, subject = self._desk.report(request, weighed=True), self._desk.subject(request)
        views.predicted(report)
        found = predict_subject(subject, PredictOptions(online=False))
        name = str(request.get("name") or found.prediction.model.name)
        shown = replace(found, command="")
        page = prediction_page(found.prediction, profile_of(found.prediction), name, report.findings, shown)
        return {"html": page}


def started(request: Mapping[str, Any], progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Return a config for `wishes` that fits the card of `settings`.

    `wishes`: model, trainer, method, data_format, batch, sequence_len, rank, epochs. Raises VramwiseError, with what
    would fit, if nothing does.
    """
    wishes = dict(request.get("wishes") or {})
    asked: dict[str, Any] = {name: _count(wishes, name) for name in _COUNTS if wishes.get(name)}
    asked |= {name: str(wishes[name]) for name in _WORDS if wishes.get(name)}
    model, trainer = (str(wishes.get(name) or "").strip() for name in ("model", "trainer"))
    if not model:
        raise VramwiseError("name a model, such as Qwen/Qwen3-8B")
    options = replace(options_of(request.get("settings") or {}), trainer=trainer or None)
    found = new(NewOptions(model=model, online=False, **asked), options, progress)
    if not found.fits:
        raise VramwiseError("; ".join([verdict(found), *further(found)]))
    return {"text": found.text, "trainer": found.subject.trainer.name, "verdict": verdict(found)}


def _count(wishes: Mapping[str, Any], name: str) -> int:
    value = wishes[name]
    if type(value) is not int or value < 1:
        raise VramwiseError(f"{name.replace('_', ' ')} must be a whole number from 1 up, not {value}")
    return value


_PARTS = 100


def first_remedy(subject: Subject) -> dict[str, Any]:
    """Return a change that makes it fit, from the few predictions that `predict` makes; it may not be the fastest."""
    own = subject.apart()
    out = quick_way_out(own)
    if out is None or out.attempt is None:
        return {"found": False, "further": True}
    return _shown(own, out.attempt)


def best_remedy(subject: Subject, progress: Progress | None) -> dict[str, Any]:
    """Return the fastest change that makes it fit; `further`: a longer search may still find one."""
    own = subject.apart(Effort() if progress is None else _Told(progress=progress))
    out = way_out(own, most=DIAGNOSIS)
    if out is None or out.attempt is None:
        return {"found": False, "further": out is not None}
    return _shown(own, out.attempt)


@dataclass(slots=True)
class _Told(Effort):
    """Effort that reports the progress of a search, in hundredths."""

    progress: Progress = lambda done, of: None
    told: int = 0

    def spend(self, units: int) -> None:
        """Count work, and report each further hundredth."""
        self.spent += units
        done = min(_PARTS, _PARTS * (self.spent - self.run) // DIAGNOSIS) if self.run else 0
        if done > self.told:
            self.told = done
            self.progress(done, _PARTS)


def _shown(subject: Subject, tried: Attempt) -> dict[str, Any]:
    after, prediction = tried.writable, tried.prediction
    needed = prediction.needs.highest_reserved_bytes if prediction is not None else 0
    return {
        "found": True,
        "words": tried.words,
        "needed": gib(needed),
        "effect": EFFECTS[effect(tried)],
        "text": after.file_text if after is not None else subject.document.file_text,
        "commands": [*tried.commands, *tried.by_hand],
    }
