"""What a terminal of 80 columns shows, in full, for each kind of answer: golden files under tests/data/terminal.

python tests/render/test_terminal.py            # writes them anew: read the difference before you commit it
python tests/render/test_terminal.py --check    # only says whether they are current
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "terminal"
WIDTH = 80
# No model of the machine at hand, and no network.
NOWHERE = {"HF_HUB_CACHE": "hub", "HF_HUB_OFFLINE": "1"}
SETTLED = ("--with", "axolotl==0.21.0", "--torch", "2.11")
LORA = """\
base_model: meta-llama/Llama-3.1-8B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 4
gradient_accumulation_steps: 4
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""
FULL = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 2048
sample_packing: true
micro_batch_size: 4
gradient_accumulation_steps: 4
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""
SHARDED = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 2048
pad_to_sequence_len: true
micro_batch_size: 1
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true
attn_implementation: flash_attention_2
fsdp_version: 2
fsdp_config:
  offload_params: false
"""
CASES = {
    "fits": (FULL, ("--gpu", "rtx-4090")),
    "tight": (FULL, ("--gpu", "rtx-4090", "--memory-limit", "22000MiB")),
    "does-not-fit-by-little": (FULL, ("--gpu", "rtx-4080")),
    "does-not-fit": (LORA + "pad_to_sequence_len: true\n", ("--gpu", "rtx-4090")),
    "only-another-training-helps": (SHARDED.partition("fsdp_version")[0], ("--gpu", "t4")),
    "nothing-helps": (SHARDED.partition("fsdp_version")[0], ("--gpu", "4GB")),
    "fits-with-shorter-rows": (LORA, ("--gpu", "rtx-4090")),
    "unknown-model": (FULL.replace("Qwen/Qwen2.5-0.5B", "nobody/unheard-of"), ("--gpu", "rtx-4090")),
    "unknown-model-of-a-size": (FULL.replace("Qwen/Qwen2.5-0.5B", "nobody/unheard-of-13b"), ("--gpu", "rtx-4090")),
    "several-gpus": (SHARDED, ("--gpu", "a100-80gb", "--gpus", "8")),
    "sharded-on-one": (SHARDED, ("--gpu", "a100-80gb")),
    "not-measured": (FULL.replace("adamw_torch_fused", "adamw_8bt"), ("--gpu", "rtx-4090")),
    "compiled": (LORA + "pad_to_sequence_len: true\ntorch_compile: true\n", ("--gpu", "rtx-4090")),
    "no-card": (FULL, ()),
    "stops": (FULL, ("--gpu", "t4")),
    "stops-and-does-not-fit": (LORA + "pad_to_sequence_len: true\n", ("--gpu", "t4")),
    "stops-without-a-card": (FULL.replace("adamw_torch_fused", "adamw_8bt"), ()),
    "still-runs": (FULL.replace("micro_batch_size", "micro_batchsize"), ("--gpu", "rtx-4090")),
    "refused-by-the-parser": (FULL + "wandb_watch: false\n", ("--gpu", "rtx-4090")),
    "verbose": (FULL, ("--gpu", "rtx-4090", "--verbose")),
    "side-by-side": (
        FULL,
        ("--gpu", "rtx-4090", *(w for n in (2, 8, 32) for w in ("--what-if", f"micro_batch_size={n}"))),
    ),
}


def shown(run, name: str) -> str:
    """What the terminal shows, less what follows the libraries and the record: the error's figures, and speeds."""
    from vramwise.render.folding import fold_all

    config, words = CASES[name]
    Path("config.yml").write_text(config)
    done = run("predict", "config.yml", *words, *SETTLED)
    said = done.stdout if done.exit_code != 2 else f"{done.exception}\n"
    lines, kept = said.splitlines(), []
    for line in lines:
        if line.startswith("Expected error"):
            if "--verbose" in words:
                break
            continue
        if line.startswith("  speed: "):
            continue
        # A calibration changes speeds, and how wide they are printed.
        timed = line.startswith(("  About ", "  If it fitted")) or " tokens a second" in line
        kept.append(re.sub(r"[\d.,]*\d", "N", line) if timed else re.sub(r" +\d+\.\d+ ×", "  N ×", line))
    return (
        f"$ vramwise predict config.yml {' '.join(words)}".rstrip()
        + f" [exit {done.exit_code}]\n"
        + "\n".join(line.rstrip() for line in fold_all(kept, WIDTH))
        + "\n"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_what_a_terminal_shows(vramwise, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable, value in NOWHERE.items():
        monkeypatch.setenv(variable, value)
    assert shown(vramwise, name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_on_the_first_screen(name):
    """On a narrow terminal too: the verdict within two lines, whatever it is."""
    text = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert len(text[0]) <= WIDTH
    words = ("Fits", "Tight", "May fit", "May not fit", "Does not fit", "Will not", "Needs", "is unknown")
    assert any(word in " ".join(text[:2]) for word in words), text[:2]


def main() -> int:
    """Write all of them, or with --check compare them."""
    import os
    import tempfile

    from click.testing import CliRunner

    from vramwise.cli.main import cli

    sys.path.append(str(ROOT / "scripts"))
    from generated import write_or_check

    def run(*words):
        result = CliRunner().invoke(cli, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            result.exit_code = 2
        return result

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= NOWHERE
        texts = {GOLDEN / f"{name}.txt": shown(run, name) for name in CASES}
    return write_or_check(texts, gone=frozenset(GOLDEN.glob("*.txt")) - texts.keys())


if __name__ == "__main__":
    sys.exit(main())
