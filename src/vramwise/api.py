"""One function per verb, for other programs: each answers what its command answers.

All take the same keywords (`Machine`, and `Reading` where a config is read), named like the command's options. What a
verb needs is imported when it is called, so `import vramwise` stays quick. Option objects (`options=`, `ask=`) are
accepted for one more release.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, Unpack

from vramwise.errors import InternalError, VramwiseError, describe_internal_error
from vramwise.opening.options import FitOptions, Machine, NewOptions, Options, PredictOptions, Reading, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vramwise.diagnosis.evidence import Diagnosis
    from vramwise.recordings.replay import ReplayResult
    from vramwise.rules.base import Rule
    from vramwise.training.parent.prepare import TrainOptions
    from vramwise.verbs.check import FileReport
    from vramwise.verbs.fit import FitReport
    from vramwise.verbs.fix import FixReport
    from vramwise.verbs.predict import Answer
    from vramwise.verbs.starting.plan import New

PathLike = str | Path
# A path, a config's text (several lines), or its values.
Source = PathLike | Mapping[str, Any]
Progress = Callable[[int, int], None]
_O = TypeVar("_O")


def check(
    source: Source | Sequence[PathLike], options: Options | None = None, **given: Unpack[Reading]
) -> list[FileReport]:
    """Check every config under the paths ("-" is stdin, a folder means every YAML file in it).

    A multi-line string or a mapping is checked as a config itself.
    """
    from vramwise.notebook.displayed import Several
    from vramwise.verbs import check as verb

    settings = _options(options, given)
    config = _config(source)
    if config is not None:
        return Several([verb.check_source(config, settings, alone=True)])
    return Several(verb.check(_names(source), settings))


def fix(
    source: Source | Sequence[PathLike],
    options: Options | None = None,
    *,
    unsafe: bool = False,
    write: bool = True,
    fits: bool = False,
    **given: Unpack[Reading],
) -> list[FixReport]:
    """Fix every config under the paths. `write=False` leaves the files unchanged; `fits` also fits each to its card.

    A multi-line string or a mapping is fixed as a config itself: `after` holds the text.
    """
    from vramwise.notebook.displayed import Several
    from vramwise.verbs import fix as verb

    settings = _options(options, given)
    config = _config(source)
    if config is not None:
        return Several([verb.fix_source(config, settings, unsafe=unsafe, fits=fits)])
    return Several(verb.fix(_names(source), settings, unsafe=unsafe, write=write, fits=fits))


def predict(
    source: Source | None = None,
    options: Options | None = None,
    ask: PredictOptions | None = None,
    *,
    changes: Sequence[str] = (),
    run: Mapping[str, Any] | None = None,
    engine: str | None = None,
    model: str | None = None,
    online: bool = True,
    steps: int | None = None,
    lengths: str | None = None,
    eval_lengths: str | None = None,
    limit_bytes: int | None = None,
    **given: Unpack[Reading],
) -> Answer:
    """Predict what the run will allocate and reserve, and whether it fits, with what would make it fit.

    `changes` (key=value, or package==version) are applied first. Without `source`, name a `model`; `run` describes the
    rest as the command's options do: {"adapter": "qlora", "sequence_len": 2048}.
    """
    from vramwise.trainers.compose import composed
    from vramwise.verbs.predict import opened, predict

    settings = _options(options, given)
    asked = PredictOptions(
        engine=engine,
        model=model,
        online=online,
        steps=steps,
        lengths=lengths,
        eval_lengths=eval_lengths,
        limit_bytes=limit_bytes,
    )
    asked = _given("ask", ask, asked)
    if source is None:
        if not asked.model:
            raise VramwiseError("nothing to predict: pass a config, or model='meta-llama/Llama-3.2-1B'")
        trainer, source = composed(asked.model, run or {}, settings.trainer)
        settings = replace(settings, trainer=trainer)
    with _told("the prediction"):
        return predict(opened(_source(source), settings, asked, changes), asked)


def fit(
    source: Source,
    options: Options | None = None,
    ask: FitOptions | None = None,
    *,
    allow: Sequence[str] = (),
    keep: Sequence[str] = (),
    margin_bytes: int | None = None,
    limit_bytes: int | None = None,
    maximise: str | None = None,
    model: str | None = None,
    online: bool = True,
    progress: Progress | None = None,
    **given: Unpack[Reading],
) -> FitReport:
    """Find the fastest variant of a config that fits its card, and alternatives. Nothing is written.

    `progress` is called with the number of predictions made and the approximate total.
    """
    from vramwise.verbs.fit import fit_source

    settings = _options(options, given)
    asked = FitOptions(
        allow=tuple(allow),
        keep=tuple(keep),
        margin_bytes=margin_bytes,
        limit_bytes=limit_bytes,
        maximise=maximise,
        model=model,
        online=online,
    )
    with _told("the search"):
        return fit_source(_source(source), settings, _given("ask", ask, asked), progress)


def new(
    model: str,
    options: Options | None = None,
    *,
    method: str = "auto",
    data: str | None = None,
    data_format: str | None = None,
    batch: int = 16,
    sequence_len: int | None = None,
    rank: int = 16,
    epochs: int | None = None,
    script: bool | None = None,
    path: str | None = None,
    online: bool = True,
    progress: Progress | None = None,
    **given: Unpack[Machine],
) -> New:
    """Write a config for a model that is predicted to fit the card; no file is written.

    If nothing fits, `fits` is False.
    """
    from vramwise.verbs import new as verb

    asked = NewOptions(
        model=model,
        method=method,
        data=data,
        data_format=data_format,
        batch=batch,
        sequence_len=sequence_len,
        rank=rank,
        epochs=epochs,
        script=script,
        path=path,
        online=online,
    )
    with _told("the search"):
        return verb.new(asked, _options(options, given), progress)


def train(
    path: PathLike,
    options: TrainOptions | None = None,
    *,
    engine: str | None = None,
    force: bool = False,
    recover: bool = True,
    random_weights: bool = False,
    resume: bool = False,
    fresh: bool = False,
    memory_limit_bytes: int | None = None,
    resume_from: str | None = None,
    trust_remote_code: bool = False,
    **given: Unpack[Reading],
) -> int:
    """Check, predict, prepare and train one config. Returns the exit code: 0 if it trained to the end."""
    from vramwise.training.parent.prepare import TrainOptions
    from vramwise.training.parent.run import train as train_config

    asked = TrainOptions(
        target=_options(None, given),
        engine=engine,
        force=force,
        recover=recover,
        random_weights=random_weights,
        resume=resume,
        fresh=fresh,
        memory_limit_bytes=memory_limit_bytes,
        resume_from=resume_from,
        trust_remote_code=trust_remote_code,
    )
    return train_config(str(path), _given("options", options, asked))


def diagnose(
    log: PathLike | BinaryIO | None = None,
    *,
    config: PathLike | None = None,
    snapshot: PathLike | None = None,
    options: Options | None = None,
    model: str | None = None,
    **given: Unpack[Machine],
) -> Diagnosis:
    """Explain what ended a run, from its log (a path or a binary stream), its config and its memory snapshot."""
    from vramwise.diagnosis.reading import read_all

    if log is None and snapshot is None:
        raise VramwiseError("nothing to diagnose: pass a log or a snapshot")
    names = [None if name is None else str(name) for name in (config, snapshot)]
    settings = _options(options, given)
    return read_all(log, config=names[0], snapshot=names[1], options=settings, model=model).diagnosis


def replay(
    path: PathLike,
    *,
    settings: str | None = None,
    torch: str | None = None,
    limit_bytes: int | None = None,
    device: int | None = None,
) -> ReplayResult:
    """Replay a torch memory snapshot or a trace file in the simulated allocator, with its own settings or others."""
    from vramwise.facts.torch import parse_torch_version
    from vramwise.recordings import replay as allocator
    from vramwise.recordings.reader import read_recording

    version = None if torch is None else parse_torch_version(torch)
    recording = read_recording(path, device)
    return allocator.replay(recording, settings=settings, torch=version, limit_bytes=limit_bytes)


def rules() -> tuple[Rule, ...]:
    """Return all rules, in reading order."""
    from vramwise.trainers.rulebook import all_rules

    return all_rules()


def explain(rule_id: str) -> Rule:
    """Return one rule with its documentation and examples."""
    from vramwise.rules.discovery import find_rule

    return find_rule(rules(), rule_id)


def snapshot_bytes(answer: Answer) -> bytes:
    """Return the predicted run as a torch memory snapshot, for PyTorch's viewer.

    With a card or a limit, a run that does not fit ends with the request that failed.
    """
    from vramwise.allocator.settings import parse_settings
    from vramwise.recordings.snapshot import write_snapshot

    prediction = answer.prediction
    run = prediction.run
    return write_snapshot(
        prediction.timeline,
        parse_settings(run.allocator.settings, run.target.torch),
        torch=run.target.torch,
        limit_bytes=prediction.capacity_bytes,
    )


def as_json(result: Any) -> dict[str, Any]:
    """Return what the command prints with `--format json` for a result of a verb; raises TypeError for others."""
    from vramwise.render.results import result_json

    return result_json(result)


def _options(options: Options | None, given: Mapping[str, Any]) -> Options:
    """Return the keywords as Options. Lists become tuples; an object in the old way is replaced by keywords."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Options(**values) if options is None else replace(_given("options", options, options), **values)


def _given(name: str, old: _O | None, new: _O) -> _O:
    """Return the option object if one is passed in the old way, with a warning, or else the keywords' own."""
    if old is None:
        return new
    warnings.warn(f"'{name}' goes with the next release: pass its fields as keywords", DeprecationWarning, stacklevel=4)
    return old


def _source(source: Source) -> Source:
    """Return a multi-line string that is not a path as the config's text; anything else unchanged."""
    is_text = isinstance(source, str) and "\n" in source and not os.path.lexists(source)
    return Text(source) if is_text else source


def _config(source: Source | Sequence[PathLike]) -> Text | Mapping[str, Any] | None:
    """Return the config itself if it is given as a text or as values; None for paths."""
    config = _source(source) if isinstance(source, str | Mapping) else None
    return config if isinstance(config, Text | Mapping) else None


def _names(paths: Source | Sequence[PathLike]) -> list[str]:
    """Return the paths as strings; a single path becomes a list of one."""
    return [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise what is not the caller's mistake as an InternalError that says what to report."""
    try:
        yield
    except (VramwiseError, TypeError):
        raise
    except Exception as error:
        raise InternalError(describe_internal_error(what, error)) from error
