"""A model folder with code of its own, which tries what confined code must not do while it is imported."""

import json

CONFIG = {
    "model_type": "made_up",
    "architectures": ["MadeUpForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_made_up.MadeUpConfig",
        "AutoModelForCausalLM": "modeling_made_up.MadeUpForCausalLM",
    },
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "kv_lora_rank": 7,  # a field that keeps it from being taken for llama
    "vocab_size": 8000,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_CONFIGURATION = """
from transformers import LlamaConfig


class MadeUpConfig(LlamaConfig):
    model_type = "made_up"
"""
_MODELING = """
from transformers import LlamaForCausalLM

from .configuration_made_up import MadeUpConfig


class MadeUpForCausalLM(LlamaForCausalLM):
    config_class = MadeUpConfig
"""
ATTEMPTS = {
    "writes a file": 'open(os.path.join(os.path.dirname(__file__), "written"), "w")',
    "appends to a file": "os.open(__file__, os.O_WRONLY | os.O_APPEND)",
    "removes a file": "os.unlink(__file__)",
    "renames a file": 'os.rename(__file__, __file__ + "x")',
    "makes a folder": 'os.mkdir(os.path.join(os.path.dirname(__file__), "made"))',
    "connects": 'socket.create_connection(("127.0.0.1", 9), timeout=1)',
    "makes a socket": "socket.socket()",
    "makes a socket in C": "ctypes.CDLL(None).socket(2, 1, 0) < 0 or fail()",
    "forks": "os.fork()",
    "starts a program": 'subprocess.run(["true"])',
    "ends its parent": "os.kill(os.getppid(), 15)",
    "signals its parent with a value": "ctypes.CDLL(None).sigqueue(os.getppid(), 15, None) == -1 or fail()",
    "types into a terminal": "import fcntl; fcntl.ioctl(0, 0x5412, b'x')",
    "sends signals by a file": "import fcntl; fcntl.fcntl(0, 8, os.getppid())",
    "lifts its limits": "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "limits its parent": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
    "takes memory": "bytearray(4 * 1024**3)",
    "reads its parent's environment": 'open(f"/proc/{os.getppid()}/environ", "rb").read(1)',
    "reads its parent's memory": 'open(f"/proc/{os.getppid()}/mem", "rb")',
    "writes by io_uring": "ctypes.CDLL(None).syscall(425, 1, 0) < 0 or fail()",
}
_TRYING = """
import ctypes, os, socket, subprocess


def fail():
    raise RuntimeError("not refused")


try:
    {attempt}
except (OSError, ImportError, MemoryError):
    pass
else:
    if "or fail()" not in {attempt!r}:
        raise RuntimeError("not refused")
"""


def write_model(folder, *attempts):
    """Write the folder; its code makes these attempts when it is imported."""
    folder.mkdir(exist_ok=True)
    tried = "".join(_TRYING.format(attempt=ATTEMPTS[name]) for name in attempts)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "configuration_made_up.py").write_text(_CONFIGURATION)
    (folder / "modeling_made_up.py").write_text(tried + _MODELING)
    return folder
