"""Requests of the page and calls of agents' tools, answered in-process: JSON with odd texts, numbers and containers."""

import json
from functools import cache

from tests.fuzz.bench import HTML_MARK, Failure
from tests.fuzz.mutate import HOSTILE_TEXT, odd_value, value_changed
from tests.fuzz.targets import add
from tests.fuzz.targets.logs import log
from tests.fuzz.targets.making_configs import config_text, several_keys

# Known here by its name: the page and the tools read no file. Small, so that a prediction takes milliseconds.
_MODEL = "EleutherAI/pythia-14m"
_SETTINGS = {"gpu": "rtx-4090", "gpus": 1, "versions": "torch==2.9.1", "alloc_conf": "", "trainer": ""}
_KNOBS = {
    "micro_batch_size": 4,
    "sequence_len": 512,
    "lora_r": 8,
    "eval_batch_size": 1,
    "checkpointing": "",
    "loss": "",
}
_FINDING = {"rule": "no-eval-batch", "key": "micro_batch_size", "line": 3}
_WISHES = {"model": _MODEL, "trainer": "trl", "adapter": "lora", "rank": 8, "sequence_len": 256, "micro_batch": 2}
_ASKS = (
    *("look", "look", "drag", "drag", "ahead", "chart", "cards", "fix", "fix-all", "start", "diagnose", "catalogue"),
    *("weigh", "remedy", "report"),
)
_TOOLS = (
    *("check_config", "check_config", "fix_config", "predict_memory", "predict_memory", "diagnose_failure"),
    *("explain_rule", "search_practice", "lookup_key", "list_gpus", "list_models"),
)


def _text(rng):
    """A config that names a known small model."""
    made = several_keys(rng) if rng.random() < 0.6 else config_text(rng).decode("utf-8", "replace")
    return made.replace(": model\n", f": {_MODEL}\n", 1)


def _request(rng):
    asked = {"ask": rng.choice(_ASKS), "text": _text(rng), "settings": _SETTINGS, "knobs": {}}
    if rng.random() < 0.3:
        asked["knobs"] = value_changed(rng, _KNOBS)
    if rng.random() < 0.4:
        asked["settings"] = value_changed(rng, _SETTINGS)
    if asked["ask"] in ("fix", "fix-all"):
        asked |= {"finding": value_changed(rng, _FINDING), "unsafe": odd_value(rng)}
    if asked["ask"] == "start":
        asked["wishes"] = value_changed(rng, _WISHES)
    if asked["ask"] == "diagnose":
        asked["log"] = log(rng).decode("utf-8", "replace")
    if rng.random() < 0.1:
        asked |= {rng.choice(("text", "settings", "knobs", "log", "wishes", "finding", "name")): odd_value(rng)}
    return json.dumps(asked).encode()


@cache
def _answers():
    """One for all inputs, as in a browser: what it keeps must not pile up."""
    from vramwise.page.answers import Answers

    return Answers()


def _ask(bench, data):
    try:
        asked = json.loads(data)
    except (ValueError, RecursionError):
        return  # the page writes its requests itself
    if not isinstance(asked, dict) or asked.get("ask") not in _ASKS:
        return
    bench.argv = ("page", asked["ask"])
    with bench.watched("the page"):
        answer = json.loads(_answers().answer(json.dumps(asked)), parse_constant=_no_constant)
        for name in ("markup", "html", "bar"):
            if HTML_MARK in str(answer.get(name) or ""):
                raise Failure("unescaped in HTML", f"page {asked['ask']}", name)


def _no_constant(word):
    raise ValueError(f"{word} is not JSON")


_WORDS = {
    "explain_rule": {"rule": "eval-batch-differs"},
    "search_practice": {"question": "oom after eval", "kinds": ["rule"], "limit": 3},
    "lookup_key": {"key": "micro_batch_size", "trainer": "axolotl"},
    "list_gpus": {"words": ["24GB", "bf16"]},
    "list_models": {"words": ["qwen"]},
}


def _call(rng):
    tool = rng.choice(_TOOLS)
    arguments = dict(
        _WORDS.get(tool) or {"config": _text(rng), "gpu": "24GB", "gpus": 1, "versions": [], "trainer": ""}
    )
    if tool == "predict_memory" and rng.random() < 0.3:
        arguments |= {"config": "", "model": _MODEL, "run": value_changed(rng, {"adapter": "lora", "rank": 8})}
    elif tool == "predict_memory":
        arguments["changes"] = [f"micro_batch_size={rng.choice((4, odd_value(rng)))}"]
    if tool == "diagnose_failure":
        arguments["log"] = log(rng).decode("utf-8", "replace")
    if rng.random() < 0.4 or tool in _WORDS:
        config = arguments.pop("config", None)  # its text is odd already
        arguments = value_changed(rng, arguments)
        arguments = {**arguments, "config": config} if config is not None and isinstance(arguments, dict) else arguments
    if tool in _WORDS and rng.random() < 0.3:
        arguments = {name: rng.choice(HOSTILE_TEXT) for name in _WORDS[tool]}
    return json.dumps({"tool": tool, "arguments": arguments}).encode()


@cache
def _tools():
    """The tools with their arguments validated as the server does it."""
    from pydantic import validate_call

    from vramwise.mcp import tools
    from vramwise.mcp.tools import fit_config
    from vramwise.mcp.verbs import Verbs

    verbs = Verbs(online=False)
    rooms = (verbs, tools)
    found = {name: getattr(room, name) for room in rooms for name in _TOOLS if hasattr(room, name)}
    return {name: validate_call(tool) for name, tool in {**found, "fit_config": fit_config}.items()}


def _use(bench, data):
    from pydantic import ValidationError
    from pydantic_core import to_json

    try:
        asked = json.loads(data)
        tool, arguments = asked["tool"], asked["arguments"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return
    if tool not in _tools() or not isinstance(arguments, dict):
        return
    bench.argv = ("mcp", tool)
    with bench.watched(f"the tool {tool}"):
        try:
            answer = _tools()[tool](**arguments)
        except ValidationError as error:
            if not error.title.endswith(tool):  # of its answer, not of the arguments
                raise
        except Exception as error:
            if type(error).__name__ not in ("ToolError", "RefusedError"):  # a sentence for the agent
                raise
        else:
            json.loads(to_json(answer, inf_nan_mode="constants"), parse_constant=_no_constant)


add(
    name="page",
    about="requests of the page: config, settings, sliders, wishes, logs → its answers",
    extension="json",
    make=_request,
    checks={"ask": _ask},
)
add(
    name="mcp",
    about="calls of agents' tools with any arguments → their answers",
    extension="json",
    make=_call,
    checks={"use": _use},
)
