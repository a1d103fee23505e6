"""Models that no family describes: their trace, from the user's cache or made now by a child process.

The child (`vramwise.tracing.worker`) imports torch and transformers, has no network, and is stopped where it takes too
long or too much. It builds models of transformers only: code that comes with a model (`auto_map`) is never run. What it
found is kept under the user's cache folder by config and versions, failures too.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from vramwise.budget import limits, parse_json, read_file
from vramwise.errors import VramwiseError
from vramwise.facts.traces import FORMAT, model_from_trace
from vramwise.files import put_whole
from vramwise.types import ModelSpec

SWITCH = "VRAMWISE_TRACE"  # 0 turns tracing off
_SECONDS = 120.0
_START = "import sys; sys.path.append(sys.argv[1]); from vramwise.tracing.worker import main; main()"


class Untraced(NamedTuple):
    """Why there is no trace."""

    why: str


@cache
def installed() -> tuple[str, str] | None:
    """The versions of transformers and torch; None where one is missing or tracing is turned off."""
    if os.environ.get(SWITCH, "").strip() == "0":
        return None
    try:
        found = version("transformers"), version("torch")
    except PackageNotFoundError:
        return None
    return found if int(found[0].partition(".")[0]) >= 5 else None


def traced_model(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec | Untraced:
    """The model of a config.json whose model_type no family lists."""
    versions = installed()
    if versions is None:
        return Untraced("`pip install 'vramwise[trace]'` predicts such models from transformers' own code")
    if "auto_map" in config:
        return Untraced("its code comes with the model, and is not run")
    text = json.dumps(config, sort_keys=True)
    key = hashlib.sha256("\0".join((str(FORMAT), *versions, text)).encode()).hexdigest()[:32]
    return _model(key, text, name, source)


@cache
def _model(key: str, text: str, name: str, source: str) -> ModelSpec | Untraced:
    path = _folder() / f"{key}.json"
    document = _kept(path)
    if document is None:
        document = _made(text)
        _keep(path, document)
    if "failed" in document:
        return Untraced(f"its code could not be traced: {document['failed']}")
    try:
        return model_from_trace(document, name=name, source=source)
    except VramwiseError as error:
        return Untraced(str(error))


def _folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "vramwise" / "traces"


def _kept(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = parse_json(read_file(path, limits.TRACE_BYTES, "a trace"))
    except (ValueError, VramwiseError):
        return None
    return found if isinstance(found, dict) else None


def _keep(path: Path, document: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_whole(path, json.dumps(document, separators=(",", ":")).encode())
    except OSError:
        pass  # traced again next time


def _made(text: str) -> Mapping[str, Any]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(
            [sys.executable or "python", "-P", "-c", _START, root],
            input=text.encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, **quiet},
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"it took more than {_SECONDS:g} s"}
    except OSError as error:
        return {"failed": f"no process could be started ({error.strerror or error})"}
    try:
        found = parse_json(done.stdout[: limits.TRACE_BYTES])
    except (ValueError, VramwiseError):
        found = None
    if not isinstance(found, dict):
        return {"failed": f"the process that traces it ended with {done.returncode}"}
    return found
