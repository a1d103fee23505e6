"""Every key of every trainer with a value of every kind → each verb. The walk's inputs take turns with mixtures."""

import contextlib
import json

import yaml
from tests.fuzz.mutate import bytes_changed
from tests.fuzz.schedule import walk
from tests.fuzz.targets import add
from tests.fuzz.targets.fixes import fixed
from tests.fuzz.targets.making_configs import api_options, options_of, several_keys, write_model
from tests.fuzz.targets.values import as_mapping, check_alone, predict

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _mixture(rng):
    data = several_keys(rng).encode()
    return bytes_changed(rng, data, several_keys(rng).encode()) if rng.random() < 0.2 else data


def _run(*words, how="command", **more):
    def run(bench, data):
        write_model(bench)
        name = bench.write("config.yml", data)
        options = [word for pair in options_of(data).items() for word in pair]
        getattr(bench, how)(words[0], name, *words[1:], *options, **more)

    return run


def _as_json(bench, data):
    """The same values in a JSON file; what JSON cannot hold is written as it is, and refused."""
    write_model(bench)
    options = [word for pair in options_of(data).items() for word in pair]
    with contextlib.suppress(Exception):
        data = json.dumps(yaml.load(data, _LOADER), indent=1).encode()
    name = bench.write("config.json", data)
    bench.command_json("check", name, "--format", "json", "--no-predict", *options)
    bench.command("fix", "--diff", "--unsafe-fixes", name, *options, allow="\t\r\x85")


def _refused(bench, data):
    """What `train` would say of it under the embedded engine, and the engine's own words for the rest."""
    from vramwise.opening.options import Options
    from vramwise.opening.subject import open_subject
    from vramwise.trainers.registry import EMBEDDED_TRAINS
    from vramwise.training.embedded import translated, unsupported

    write_model(bench)
    name = bench.write("config.yml", data)
    with bench.watched("unsupported"):
        run = open_subject(name, Options(**api_options(data))).run
        if run.trainer in EMBEDDED_TRAINS and not unsupported(run):
            translated(run)


def _add(verb, about, share, checks):
    """The shares are such that `check` and `fix` go through the walk in about the same time; `predict` takes longest."""
    add(
        name=f"keys-{verb}",
        about=f"every key of every trainer × a value of every kind → {about}",
        extension="yml",
        make=_mixture,
        walk=walk,
        share=share,
        checks=checks,
    )


_add(
    "check",
    "`check`: text, resolved, JSON, as a JSON file, in Python",
    18,
    {
        "text": _run("check", "--no-predict", "--pedantic"),
        "json": _run("check", "--no-predict", "--format", "json", how="command_json"),
        "resolved": _run("check", "--no-predict", "--show-resolved", "--gpus", "2"),
        "as-json": _as_json,
        "mapping": as_mapping(check_alone),
        "train": _refused,
    },
)
_add(
    "predict",
    "`predict`: a card, two, the embedded engine, in Python; `check --gpu` without prediction",
    10,
    {
        "card": _run("predict", "--gpu", "24GB", "--format", "json", how="command_json"),
        "cards": _run("predict", "--gpus", "2", "--gpu", "h100"),
        "embedded": _run("predict", "--engine", "transformers"),
        "mapping": as_mapping(predict),
        # Rules about cards; those about predictions, which weigh remedies and take longer, are left to `check-gpu`.
        "check": _run("check", "--gpu", "rtx-4090", "--no-predict", "--format", "sarif", how="command_json"),
    },
)
_add("fix", "`fix`, safe and unsafe", 24, {"safe": fixed(unsafe=False), "unsafe": fixed(unsafe=True)})
