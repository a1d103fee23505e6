"""Configs through `check` and `predict`, in every format."""

from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import config_text, predictable_text, write_model

_CARDS = ("rtx-4090", "24GB", "h100", "t4", "mi300x")


def _check(output, *words):
    def run(bench, data):
        write_model(bench)
        name = bench.write("config.yml", data)
        argv = ("check", name, "--format", output, *words)
        if output in ("json", "sarif"):
            bench.command_json(*argv)
        else:
            bench.command(*argv, workflow=output == "github")

    return run


def _from_stdin(bench, data):
    bench.command("check", "-", "--show-resolved", stdin=data)


def _predict(output, *words):
    def run(bench, data):
        write_model(bench)
        argv = ("predict", bench.write("config.yml", data), *words)
        if output == "html":
            bench.command_html(*argv)
        elif output == "json":
            bench.command_json(*argv, "--format", "json")
        else:
            bench.command(*argv)

    return run


add(
    name="check",
    about="config text → `check`, no card: text, resolved, JSON, SARIF, GitHub annotations",
    extension="yml",
    make=config_text,
    checks={
        "text": _check("text"),
        "resolved": _check("text", "--show-resolved", "--gpus", "8"),
        "json": _check("json"),
        "sarif": _check("sarif"),
        "github": _check("github"),
        "stdin": _from_stdin,
    },
)
add(
    name="check-gpu",
    about="config text → `check --gpu`: rules and prediction",
    extension="yml",
    make=predictable_text,
    checks={
        "text": _check("text", "--gpu", "rtx-4090"),
        "json": _check("json", "--gpu", "1GB", "--torch", "2.9"),
        "several": _check("text", "--gpu", "h100", "--gpus", "8", "--predict"),
        "sarif": _check("sarif", "--gpu", "t4"),
    },
)
add(
    name="predict",
    about="config text → `predict`: text, cards, JSON, HTML, snapshot",
    extension="yml",
    make=predictable_text,
    checks={
        "text": _predict("text"),
        "cards": _predict("text", "--cards", "--gpu", "24GB"),
        "json": _predict("json", "--gpu", "h100", "--gpus", "2"),
        "html": _predict("html", "--gpu", "rtx-4090"),
        "snapshot": _predict("text", "--snapshot", "predicted.pickle", "--engine", "transformers"),
    },
)
