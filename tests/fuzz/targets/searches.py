"""Configs → `fit`: the search for the fastest variant that fits, as text, JSON, a page, and written into the file."""

from tests.fuzz.bench import CONFIG_TEXT
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import options_of, predictable_text, several_keys, write_model


def _config(rng):
    return several_keys(rng).encode() if rng.random() < 0.5 else predictable_text(rng)


def _fit(*words, how="command", **more):
    def run(bench, data):
        write_model(bench)
        name = bench.write("config.yml", data)
        options = [word for pair in options_of(data).items() for word in pair]
        getattr(bench, how)("fit", name, *words, *options, **more)

    return run


add(
    name="fit",
    about="config text → `fit`: text, JSON, HTML, `--allow`, `--max`, `--write`",
    extension="yml",
    make=_config,
    share=2,
    checks={
        "text": _fit("--gpu", "24GB"),
        "json": _fit("--gpu", "1GB", "--format", "json", how="command_json"),
        "page": _fit("--gpu", "t4", how="command_html"),
        "allow": _fit("--gpu", "rtx-4090", "--allow", "qlora", "--allow", "8bit-optimizer"),
        "max": _fit("--gpu", "t4", "--max", "micro_batch_size"),
        "write": _fit("--gpu", "h100", "--gpus", "2", "--write", allow=CONFIG_TEXT),
    },
)
