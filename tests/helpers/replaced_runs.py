"""Runs that write where something is already."""

import hashlib

from tiny_runs import CONFIG

AXOLOTL = {**CONFIG, "adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "save_strategy": "no"}


def state(folder):
    """Every file's content, time and kind."""
    return {
        path.relative_to(folder).as_posix(): (
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def refused(vramwise, *words):
    done = vramwise("train", *words)
    assert done.exit_code == 2, done.output
    return str(done.exception)
