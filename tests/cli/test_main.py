"""What every command shares: mistakes in one sentence with exit code 2, a closed pipe, Ctrl-C, a full disk, help."""

import os
import signal
import subprocess
import sys
import time

import pytest

from installed import NOT_THIS_SYSTEM, PATIENCE, posix
from vramwise.cli.main import COMMANDS, EXAMPLES

CONFIG = "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\nsequence_len: 64\n"


def start(*words, **more):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"} | more.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-m", "vramwise", *map(str, words)],
        stdout=more.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **more,
    )


def run(*words, **more):
    process = start(*words, **more)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return path


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["chek"], "no such command 'chek': did you mean check?"),
        (["zzz"], "the commands are new, check, fix, predict"),
        (["check"], "Missing argument"),
        (["check", "--gpuu", "t4", "x.yml"], "'--gpuu'"),
        (["check", "x.yml", "--format", "yaml"], "'yaml' is not one of"),
        (["predict", "nofile.yml"], "nofile.yml: file not found"),
        (["predict", "a.yml", "b.yml"], "unexpected extra argument"),
        (["explain", "batch-size"], "did you mean batch-size-set"),
        (["replay", "nofile.pickle"], "nofile.pickle"),
        (["diagnose", "nofile.log"], "nofile.log"),
        (["report", "nofolder"], "nofolder"),
        (["train", "nofile.yml"], "nofile.yml: file not found"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(words, sentence):
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert sentence in err.splitlines()[0]
    assert "Traceback" not in err


def test_a_config_where_a_command_belongs_gets_the_right_hint(config):
    code, _, err = run(config)
    assert code == 2
    assert f"vramwise check {config}" in err


def test_no_arguments_show_the_help(config):
    code, out, err = run()
    assert (code, out) == (2, "")
    assert all(name in err for name in COMMANDS)


@pytest.mark.parametrize("verb", ["predict", "train"])
def test_a_config_that_cannot_be_used_is_refused_with_its_place(verb, tmp_path):
    broken, wrong = tmp_path / "broken.yml", tmp_path / "wrong.yml"
    broken.write_text("base_model: x\nmicro_batch_size: [1\n")
    wrong.write_text(CONFIG.replace("micro_batch_size: 1", "micro_batch_size: many"))
    for path, place in ((broken, "2:19"), (wrong, "2:1")):
        code, _, err = run(verb, path)
        assert code == 2
        assert err.startswith(f"error: {path}:{place}: ")


def test_a_change_of_a_wrong_type_is_refused(config):
    code, out, err = run("predict", config, "--what-if", "micro_batch_size=many")
    assert (code, out) == (2, "")
    assert err == "error: --what-if: micro_batch_size takes a whole number, found the text 'many'\n"


def test_every_command_has_help_with_its_exit_codes_or_examples(vramwise):
    for name in COMMANDS:
        text = vramwise(name, "--help").stdout
        assert text.startswith(f"Usage: cli {name}")
        for line in EXAMPLES.get(name, ()):
            assert f"    {line}\n" in text


def test_the_examples_of_help_use_options_that_exist(vramwise):
    for name, lines in EXAMPLES.items():
        text = vramwise(name, "--help").stdout
        for line in lines:
            words = line.partition(f"vramwise {name}")[2].split()
            assert all(f"  {word} " in text for word in words if word.startswith("--")), line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason=NOT_THIS_SYSTEM)  # noqa: PTH110
def test_a_full_disk_is_a_sentence():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        code, _, err = run("rules", stdout=full)
    assert code == 2
    assert err == "error: cannot use the output: No space left on device\n"


@posix
def test_a_reader_that_goes_away_is_no_error():
    process = start("rules")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE) in (0, 1)
    assert process.stderr.read() == ""
    process.stderr.close()


def heeding_interrupts():
    """What a shell starts in the background ignores them, and so would what is started here."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@posix
def test_ctrl_c_is_130_and_no_traceback():
    process = start("diagnose", "-", stdin=subprocess.PIPE, preexec_fn=heeding_interrupts)
    process.stdin.write("step 1\n" * 200_000)  # more than a pipe holds: written when it is being read
    process.stdin.flush()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err


@posix
@pytest.mark.parametrize(
    ("variable", "value", "coloured"), [("NO_COLOR", "1", 0), ("TERM", "dumb", 0), ("TERM", "xterm", 1)]
)
def test_colours_only_where_they_are_wanted(variable, value, coloured):
    import pty

    screen, terminal = pty.openpty()
    process = start("rules", stdout=terminal, env={"TERM": "xterm", "NO_COLOR": "", variable: value})
    os.close(terminal)
    assert (b"\x1b[" in os.read(screen, 4096)) == coloured
    os.close(screen)
    process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_terminal_without_utf8_is_no_error(config, encoding):
    environment = {"PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    process = start("predict", config, "--gpu", "t4", env=environment, stdout=subprocess.DEVNULL)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")


def test_a_mended_config_is_utf8_with_its_line_ends_whatever_the_terminal(tmp_path):
    data = (
        "# größe → 4\r\nbase_model: m\r\nmicro_batch_size: 2\r\neval_batch_size: 4\r\n"
        "val_set_size: 0.1\r\nevals_per_epoch: 1\r\n"
    ).encode()
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    words = [sys.executable, "-m", "vramwise", "fix", "-", "--select", "eval-batch-differs"]
    out = subprocess.run(words, input=data, capture_output=True, env=environment, timeout=PATIENCE, check=False).stdout
    assert out == data.replace(b"eval_batch_size: 4", b"eval_batch_size: 2")
