"""Models that no family describes: their trace, from the user's cache or made now by a child process.

The child (`vramwise.models.recorder.worker`) imports torch and transformers, has no network, and is stopped if it takes
too much time or memory. Code that comes with a model (`auto_map`) runs only in `vramwise trace --trust-remote-code`,
sandboxed by the kernel; predictions use the cached result. Traces and failures are cached below the user's cache folder
by config, versions and code.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import gettempdir
from threading import Timer
from typing import Any, NamedTuple

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.models.templates import NotCovered, document_of
from vramwise.models.traces import FORMAT, model_from_trace
from vramwise.types import ModelSpec
from vramwise.units import mib
from vramwise.whole_files import put_whole

_TRACER = "2"  # counts changes of what is recorded: traces and failures from before are made again
SWITCH = "VRAMWISE_TRACE"  # 0 turns tracing off
_SECONDS = 300.0
_LIMITS_REACHED = (-9, -24)  # by the kernel: killed, CPU time used up
_START = "import sys; sys.path.append(sys.argv[1]); from vramwise.models.recorder.worker import main; main()"


class Untraced(NamedTuple):
    """Why there is no trace."""

    why: str


@cache
def installed() -> tuple[str, str] | None:
    """Return the versions of transformers and torch.

    None if one is missing, transformers is older than 5, or tracing is turned off.
    """
    if _is_off():
        return None
    try:
        found = version("transformers"), version("torch")
    except PackageNotFoundError:
        return None
    return found if int(found[0].partition(".")[0]) >= 5 else None


def _is_off() -> bool:
    return os.environ.get(SWITCH, "").strip() == "0"


def _needed() -> str:
    """Return what tracing lacks here, as a clause with the remedy."""
    if _is_off():
        return f"tracing is off ({SWITCH}=0): unset it to predict such models from transformers' own code"
    return "`pip install 'vramwise[trace]'` predicts such models from transformers' own code"


def traced_model(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec | Untraced:
    """Return the model of a config.json whose model_type no family lists, or why there is none."""
    versions = installed()
    found = None if versions is None else _model(json.dumps(config, sort_keys=True), versions, name, source)
    if isinstance(found, ModelSpec):
        return found
    shipped = _shipped(config, name, source)
    return shipped if isinstance(shipped, ModelSpec) else found or shipped


def _shipped(config: Mapping[str, Any], name: str, source: str) -> ModelSpec | Untraced:
    """Return the model from the trace of its type that ships with vramwise, or why there is none."""
    try:
        document = document_of(config)
    except NotCovered as error:
        return Untraced(f"{error}; {_needed()}")
    return Untraced(_needed()) if document is None else model_from_trace(document, name=name, source=source)


@cache
def _model(text: str, versions: tuple[str, str], name: str, source: str) -> ModelSpec | Untraced:
    code = Path(source).parent if "auto_map" in parse_json(text.encode()) else None
    try:
        document = _kept(_path(text, versions, code))
    except VramwiseError as error:
        return Untraced(str(error))
    if document is None:
        if code is not None:
            return Untraced(
                "its code comes with the model and is not run: `vramwise trace FOLDER --trust-remote-code` runs it "
                "once, confined, and keeps the trace"
            )
        document = _made(text, versions, None)
    if "failed" in document:
        return Untraced(f"its code could not be traced: {str(document['failed']).partition('. ')[0]}")
    try:
        return model_from_trace(document, name=name, source=source)
    except VramwiseError as error:
        return Untraced(str(error))


def trace_document(config: Mapping[str, Any], *, folder: Path, trust_remote_code: bool) -> Mapping[str, Any]:
    """Return the trace of a model as a document, cached or made now. `folder`: contains the model's own code.

    Raises VramwiseError if there is none, or if the model's code would have to run and is not trusted.
    """
    versions = installed()
    if versions is None:
        lacking = f"it is off ({SWITCH}=0)" if _is_off() else "pip install 'vramwise[trace]'"
        raise VramwiseError(f"tracing needs torch and transformers 5 or newer: {lacking}")
    code = folder if "auto_map" in config else None
    if code is not None and not trust_remote_code:
        raise VramwiseError(
            "the code of this model comes with it: read it, then run with --trust-remote-code. It runs in a process "
            "without network that can only read files"
        )
    text = json.dumps(config, sort_keys=True)
    document = _kept(_path(text, versions, code)) or _made(text, versions, code)
    if "failed" in document:
        raise VramwiseError(f"the model could not be traced: {document['failed']}")
    model_from_trace(document, name=str(folder), source=str(folder))
    return document


def _path(text: str, versions: tuple[str, str], code: Path | None) -> Path:
    """Return the cache path of a trace: by config, versions, and the model's own code."""
    parts = [str(FORMAT), _TRACER, *versions, text]
    if code is not None:
        for path in sorted(code.glob("*.py")):
            parts += [path.name, read_file(path, ceilings.MODEL_BYTES, "a module").decode("utf-8", "replace")]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return _folder() / f"{key}.json"


def _folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "vramwise" / "traces"


def _kept(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = parse_json(read_file(path, ceilings.TRACE_BYTES, "a trace"))
    except (ValueError, VramwiseError):
        return None
    return found if isinstance(found, dict) else None


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_whole(path, json.dumps(document, separators=(",", ":")).encode())
    except OSError:
        pass  # traced again next time


def _made(text: str, versions: tuple[str, str], code: Path | None) -> Mapping[str, Any]:
    """Make the trace of a config in a child process, and cache it."""
    document = _run_child(
        json.dumps({"config": parse_json(text.encode()), "code": None if code is None else str(code)})
    )
    _keep(_path(text, versions, code), document)
    return document


_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TMPDIR")
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def _run_child(asked: str) -> Mapping[str, Any]:
    root = str(Path(__file__).parents[2])
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}  # no tokens
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            [sys.executable or "python", "-P", "-c", _START, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**passed_on, **_QUIET, "HOME": gettempdir()},
            start_new_session=True,  # detached from the user's terminal
        )
    except OSError as error:
        return {"failed": f"no process could be started ({error.strerror or error})"}
    answer = _answer_of(child, asked.encode())
    if time.monotonic() - started > _SECONDS:
        return {"failed": f"it took more than {_SECONDS:g} s"}
    if len(answer) > ceilings.TRACE_BYTES:
        return {"failed": f"its trace is larger than {mib(ceilings.TRACE_BYTES)}"}
    try:
        found = parse_json(answer)
    except (ValueError, VramwiseError):
        found = None
    if not isinstance(found, dict):
        if child.returncode in _LIMITS_REACHED:
            return {"failed": "it took too long or too much memory, as code does that loops over the tokens"}
        return {"failed": f"the process that traces it ended with {child.returncode}"}
    return found


def _answer_of(child: subprocess.Popen[bytes], asked: bytes) -> bytes:
    """Return the process's answer, at most one byte more than a trace may have, and end the process."""
    assert child.stdin is not None
    assert child.stdout is not None
    limit = Timer(_SECONDS, child.kill)
    limit.start()
    try:
        with suppress(BrokenPipeError):
            child.stdin.write(asked)
            child.stdin.close()
        return child.stdout.read(ceilings.TRACE_BYTES + 1)
    finally:
        limit.cancel()
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)
        child.kill()
        child.wait()
        child.stdout.close()
