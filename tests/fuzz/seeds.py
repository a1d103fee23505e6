"""What mutation starts from: the examples, every rule's texts, the tests' own data, and the corpus beside the checkout."""

import gzip
import json
from functools import cache
from pathlib import Path

from tests.fuzz.keys import all_keys

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "tests" / "data"
# Real configs and recordings, where they lie beside the checkout or above it.
SHARED = next((above / "shared" for above in ROOT.parents if (above / "shared" / "corpus").is_dir()), HERE / "none")
CORPUS = HERE / "corpus"
# Larger ones make mutation slow and find no more.
_LONGEST = 64_000


def corpus(target):
    """The regression files of a target."""
    folder = CORPUS / target
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


@cache
def config_texts():
    """Configs: examples, every rule's bad and good text, real ones."""
    from vramwise.trainers.rulebook import all_rules

    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").rglob("*.yml"))]
    texts += [text for rule in all_rules() for text in (rule.bad, rule.good)]
    found = sorted((SHARED / "corpus").rglob("*.y*ml")) if SHARED.is_dir() else []
    texts += [path.read_text(encoding="utf-8", errors="replace") for path in found]
    return [text for text in texts if len(text) < _LONGEST]


@cache
def known_keys():
    """Every name of a key, of any trainer and at any depth of the seeds → the values seen for it."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    seen = {name: [] for name in sorted({key.parts[-1].removesuffix("[]") for key in all_keys()})}
    for text in config_texts():
        try:
            _collect(yaml.load(text, loader), seen)
        except (yaml.YAMLError, ValueError):
            continue
    return seen


def _collect(value, seen):
    if isinstance(value, list):
        for item in value:
            _collect(item, seen)
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                seen.setdefault(key, []).append(item)
            _collect(item, seen)


@cache
def model_configs():
    """Parsed config.json of every shape in the catalogue."""
    from vramwise.models.known import catalogue_shapes

    tiny = json.loads((ROOT / "examples/tiny/model/config.json").read_bytes())
    return [tiny, *(dict(shape["config"]) for shape in catalogue_shapes())]


@cache
def traces():
    """Recorded traces, each cut to a few hundred events."""
    found = []
    for path in sorted((DATA / "traces").glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        found += [{**trace, "events": trace["events"][:count]} for count in (30, 300)]
    return found


@cache
def snapshots():
    """Recorded snapshots as plain containers, each cut to some hundred events. Our own files: they may be unpickled."""
    import pickle

    found = []
    for path in sorted((DATA / "traces").glob("*.pickle.gz")) + sorted((DATA / "diagnose/h200").glob("*.pickle.gz")):
        snapshot = pickle.loads(gzip.decompress(path.read_bytes()))
        traces = [trace[-200:] for trace in snapshot["device_traces"]]
        found.append({**snapshot, "device_traces": traces, "segments": snapshot["segments"][:20]})
    return found


@cache
def logs():
    """Logs of failed runs."""
    found = []
    for path in (DATA / "diagnose/h200/cases.jsonl", DATA / "diagnose/error_lines.jsonl"):
        found += [json.loads(line)["log"] for line in path.read_text(encoding="utf-8").splitlines()]
    return [log for log in found if len(log) < _LONGEST]
