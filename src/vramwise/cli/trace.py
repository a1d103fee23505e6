"""`vramwise trace`: writes the trace of a model to a file, for machines without torch."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vramwise.cli.writing import say
from vramwise.errors import VramwiseError
from vramwise.models.known import cached_config, local_config, read_config
from vramwise.models.tracing import trace_document
from vramwise.whole_files import put_whole


@click.command("trace")
@click.argument("model", metavar="MODEL")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the trace here, instead of stdout.")
@click.option(
    "--trust-remote-code",
    is_flag=True,
    help="Run the code that comes with the model, in a process without network that can only read files.",
)
def command(model: str, out: Path | None, trust_remote_code: bool) -> None:
    """Trace a model: record from its own code what a training step allocates.

    MODEL is a config.json, a folder with one, or the id of a model in the local Hugging Face cache. Needs torch and
    transformers (pip install 'vramwise[trace]'). The file works as a model everywhere: base_model: trace.json, or
    --model trace.json.

    Exit code: 0 traced, 2 not traced.
    """
    path = local_config(model) or cached_config(model)
    if path is None:
        raise VramwiseError(f"no config.json found for '{model}': name a folder, a config.json or a cached model")
    found = trace_document(read_config(path), folder=path.parent, trust_remote_code=trust_remote_code)
    text = json.dumps(found, separators=(",", ":"))
    if out is None:
        say(text)
        return
    put_whole(out, text.encode())
    layers = len(found["kinds"])
    say(f"{out}: {found['model_type']}, {layers} layers of {len(set(found['kinds']))} kinds, {found['source']}")
