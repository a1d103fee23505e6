"""Inputs that would run something, change the page or break it, if a word of them were taken for markup or code.

    python tests/page/hostile.py 400       # so many in Chromium, then the page is asked something plain

The payloads stand in every place that is displayed: keys, values, comments, names of files, lines of logs, links.
"""

import base64
import json
import random
import sys
import zlib
from pathlib import Path

# Each would call `ran()` or show up as an element, were it not text.
PAYLOADS = (
    "<img src=x onerror=ran()>",
    "<script>ran()</script>",
    '"><svg onload=ran()>',
    "' onfocus=ran() autofocus='",
    "</textarea><script>ran()</script>",
    "</style><img src=x onerror=ran()>",
    "<iframe srcdoc='<script>parent.ran()</script>'></iframe>",
    "<details open ontoggle=ran()>x</details>",
    "<a href=javascript:ran()>x</a>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=ran()>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=javascript:ran()>",
    "&lt;img src=x onerror=ran()&gt;",
    "${ran()}{{constructor.constructor('ran()')()}}",
    "javascript:ran()",
    "__proto__",
    "\u202e\u2028<img src=x onerror=ran()>\x1b[31m",
    "x" * 3000 + "<img src=x onerror=ran()>",
)
PLACES = (
    *("base_model", "adapter", "lora_target_modules", "optimizer", "lr_scheduler", "bf16", "attn_implementation"),
    *("micro_batch_size", "sequence_len", "lora_r", "gradient_checkpointing", "deepspeed", "output_dir"),
)
AXOLOTL = {
    "base_model": "HuggingFaceTB/SmolLM2-135M",
    "adapter": "lora",
    "lora_r": 8,
    "lora_target_linear": True,
    "sequence_len": 512,
    "micro_batch_size": 1,
    "sample_packing": True,
    "optimizer": "adamw_torch",
    "bf16": "auto",
}
TRL = {"model_name_or_path": "HuggingFaceTB/SmolLM2-135M", "use_peft": True, "max_length": 512, "dataset_name": "x/y"}
LLAMAFACTORY = {
    "model_name_or_path": "HuggingFaceTB/SmolLM2-135M",
    "stage": "sft",
    "do_train": True,
    "template": "llama3",
    "finetuning_type": "lora",
    "dataset": "identity",
    "cutoff_len": 512,
    "output_dir": "out",
}
FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB"
)


def inputs(count, seed=0):
    """So many (kind, name, content), of each kind in turn."""
    rng = random.Random(seed)
    kinds = ("config", "config", "config", "log", "link", "snapshot", "dropped")
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield kind, *MAKERS[kind](rng)


def config(rng):
    """A config of any trainer with payloads among its keys, values and comments."""
    values = dict(rng.choice((AXOLOTL, AXOLOTL, TRL, LLAMAFACTORY)))
    for _ in range(rng.randint(1, 3)):
        payload, how = rng.choice(PAYLOADS), rng.random()
        if how < 0.2:
            values[payload] = rng.choice((1, "x", [payload]))
        elif how < 0.35:
            values["datasets"] = [{"path": payload, "type": payload, payload: payload}]
        else:
            values[rng.choice([*values, *PLACES])] = rng.choice((payload, [payload], {payload: payload}))
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    lines.insert(rng.randint(0, len(lines)), f"# {' '.join(rng.choice(PAYLOADS).split())}")
    if rng.random() < 0.15:
        lines.insert(rng.randint(0, len(lines)), rng.choice(PAYLOADS) + ": [")
    return "", "\n".join(lines) + "\n"


def log(rng):
    """A log of a failure with payloads before, in and after its lines."""
    said = [rng.choice(PAYLOADS) for _ in range(4)]
    frames = f'  File "{said[0]}", line 3, in {said[1]}\n    {said[2]}\n'
    text = f"{said[3]}\nTraceback (most recent call last):\n{frames}{FAILED} {said[1]}\n[{said[2]}] {{'loss': {said[0]}}}\n"
    return rng.choice(PAYLOADS)[:100].replace("/", "_") + ".log", text


def snapshot(rng):
    """Bytes that are no snapshot, or a hostile one."""
    payload = rng.choice(PAYLOADS)
    data = rng.choice(
        (
            f"cos\nsystem\n(S'{payload}'\ntR.".encode(),
            b"\x80\x04" + payload.encode("utf-8", "replace"),
            payload.encode("utf-8", "replace"),
            b"\x80\x04}\x8c\x08segments]s.",
            b"\x1f\x8b" + payload.encode("utf-8", "replace"),
        )
    )
    return f"{payload[:60].replace('/', '_')}.pickle", data


def link(rng):
    """A fragment as `Copy link` makes it, with payloads in all that it carries; now and then a damaged one."""
    _, text = config(rng)
    word = lambda: rng.choice(PAYLOADS)  # noqa: E731
    settings = {"gpu": word(), "gpus": rng.choice((1, -1, word())), "versions": word(), "alloc_conf": word()}
    knobs = {"micro_batch_size": rng.choice((4, word())), "loss": word(), word(): word(), "__proto__": {"x": word()}}
    state = json.dumps(
        {"text": text, "settings": rng.choice((settings, {}, word())), "knobs": rng.choice((knobs, None))}
    )
    packer = zlib.compressobj(9, wbits=-15)
    packed = base64.urlsafe_b64encode(packer.compress(state.encode()) + packer.flush()).decode().rstrip("=")
    return "", rng.choice(
        (f"#c={packed}", f"#c={packed}", f"#c={packed[: len(packed) // 2]}", f"#c={word()}", f"#{word()}")
    )


def dropped(rng):
    """A config in a file whose name is a payload."""
    return rng.choice(PAYLOADS)[:100].replace("/", "_") + ".yml", config(rng)[1]


MAKERS = {"config": config, "log": log, "link": link, "snapshot": snapshot, "dropped": dropped}
# Whatever the page does not make itself: elements, handlers, addresses of scripts; and whether a payload ran.
INJECTED = """
const kinds = 'script, img, iframe, object, embed, base, form:not(#start), meta[http-equiv=refresh], math, details:not([class]) > img';
const odd = [...document.body.querySelectorAll(kinds)].map((one) => one.outerHTML.slice(0, 200));
for (const one of document.querySelectorAll('*')) {
  for (const { name, value } of one.attributes) {
    if (name.startsWith('on') || /^\\s*javascript:/i.test(value) && ['href', 'src', 'action'].includes(name)) odd.push(`${one.tagName} ${name}`);
  }
}
if (window.hasRun) odd.push('a payload ran');
if (Object.prototype.x !== undefined) odd.push('a prototype was changed');
return odd;
"""
WATCH = "window.hasRun = false; window.ran = () => { window.hasRun = true; };"


def attack(reader, kind, name, content):
    """Drive one input the way a reader would, until the page has answered; what it let in."""
    reader.run(WATCH)
    if kind == "config":
        reader.paste(content)
    elif kind == "link":
        reader.run(f"location.hash = {json.dumps(content)}")
    else:
        reader.run(
            "document.getElementById('said').textContent = ''; document.getElementById('diagnosis').replaceChildren()"
        )
        reader.drop(name, content)
        if kind != "dropped":
            reader.until("return document.querySelector('#close') || document.getElementById('said').textContent")
    found = reader.run(INJECTED)
    return found + [str(line) for line in reader.browser.complaints()]


def main():
    """Fuzz the page of `vramwise serve`, and say what came of it."""
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "tests" / "helpers"), str(root / "src")]
    from page_reader import SMALL, Reader

    from browsers import started
    from threads import serving
    from vramwise.page.serving import served_page

    count, seed = int(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])
    with served_page(None, 0) as server, serving(server), started() as browser:
        reader, wrong = Reader(browser, server.address), 0
        reader.open()
        for number, (kind, name, content) in enumerate(inputs(count, seed)):
            for line in attack(reader, kind, name, content):
                wrong += 1
                sys.stderr.write(f"{number} {kind} {name!r} {content!r:.500}\n  {line}\n")
        reader.plain_settings()
        reader.paste(SMALL)
        sys.stdout.write(f"{count} inputs, {wrong} let in; the page still says: {reader.text()}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
