"""A disk that fills: one sentence, and what was saved before stays."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from installed import need
from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import saving

ROOT = Path(__file__).parent.parent.parent


def cut_short(folder, error, **more):
    with saving(folder, "checkpoint-3", **more):
        raise error


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    error = RuntimeError("unexpected pos 5371136 vs 5371024")
    with pytest.raises(RuntimeError, match="unexpected pos"):
        cut_short(tmp_path, error)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    with pytest.raises(VramwiseError, match="checkpoint-3 cannot be saved: no space left in"):
        cut_short(tmp_path, error)
    with pytest.raises(RuntimeError):
        cut_short(tmp_path, error, probe=False)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("SafetensorError: Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_an_error_that_says_so_is_believed(tmp_path, error):
    """What was cut short may have been removed by then, so that there is room again."""
    with pytest.raises(VramwiseError, match="checkpoints saved before are kept"):
        cut_short(tmp_path, error, probe=False)


SCRIPT = """
mount -t tmpfs -o size=2500k tmpfs "$1" || exit 1
"$2" -m vramwise train "$3" --random-weights || echo "code $?"
ls "$1"
"""


@pytest.mark.nightly
def test_a_checkpoint_on_a_real_full_disk(tmp_path):
    """On a small disk of its own: the first checkpoints fit, a later one does not."""
    need("torch", "transformers")
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare may not mount a small disk here: run the tests as root or allow user namespaces")
    from tiny_runs import make_folder, write_config

    folder = make_folder(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    config = write_config(folder, output_dir=str(out), save_steps=1, save_strategy=None)
    # a checkpoint of this model takes about 0.7 MiB: the disk holds some of them, not ten
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", SCRIPT, "bash", str(out), sys.executable, str(config)],
        capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert "cannot be saved: no space left in" in done.stderr, said
    assert "code 2" in done.stdout, said
    assert "is complete: go on from it with --resume" in said
    assert "checkpoint-1\n" in done.stdout.partition("code 2")[2]
