"""`vramwise serve`: the page's requests are answered by this machine's Python, for whoever has the key."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from installed import PATIENCE
from threads import serving
from vramwise.page import local
from vramwise.page.answers import Answers
from vramwise.page.folder import ASSETS, local_files
from vramwise.page.serving import served_page

CONFIG = """base_model: Qwen/Qwen2.5-0.5B
adapter: lora
lora_target_linear: true
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 1024
micro_batch_size: 2
bf16: auto
"""
SETTINGS = {"gpu": "RTX 4090", "gpus": 1}
LOOK = {"ask": "look", "text": CONFIG, "settings": SETTINGS, "knobs": {}}


@pytest.fixture(scope="module")
def served():
    with served_page(None, 0) as server, serving(server):
        yield server


def asked(server, request, line="quick", key=None, data=b"", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps(request).encode() + b"\n" + data
    headers["X-Vramwise-Key"] = server.key if key is None else key
    connection.request("POST", f"/ask/{line}", body, headers)
    answer = connection.getresponse()
    lines = answer.read().splitlines()
    connection.close()
    return answer.status, [json.loads(line) for line in lines] if answer.status == 200 else []


def test_an_answer_is_that_of_the_static_page(served):
    status, lines = asked(served, LOOK)
    assert status == 200
    assert json.loads(lines[-1]["answer"]) == json.loads(Answers().answer(json.dumps(LOOK)))
    assert json.loads(lines[-1]["answer"])["trainer"] == "Axolotl"


def test_a_search_tells_its_progress(served):
    request = {"ask": "fit", "text": CONFIG, "settings": SETTINGS, "knobs": {}}
    _, lines = asked(served, request, "slow")
    assert lines[0].keys() == {"done", "of"}
    assert json.loads(lines[-1]["answer"])["ok"]


def test_the_key_is_needed(served):
    assert asked(served, LOOK, key="")[0] == 403
    assert asked(served, LOOK, key="x" * len(served.key))[0] == 403
    assert asked(served, LOOK, Host="evil.example")[0] == 403
    assert asked(served, LOOK, Origin="http://evil.example")[0] == 403
    assert asked(served, LOOK, line="other")[0] == 501
    assert asked(served, LOOK, Content_Length="99999999999")[0] == 413


def test_the_key_is_in_no_file_of_the_page(served):
    assert len(served.key) > 20
    assert served.address.endswith(f"#key={served.key}")
    assert not any(served.key in text for text in local_files().values())


def test_a_question_that_nobody_waits_for_ends(served):
    asked(served, LOOK)
    before = served.answerers["/ask/quick"]._process
    with socket.create_connection(("127.0.0.1", served.server_port), timeout=PATIENCE) as client:
        body = json.dumps({**LOOK, "ask": "fit"}).encode()
        head = f"POST /ask/quick HTTP/1.1\r\nHost: 127.0.0.1:{served.server_port}\r\nX-Vramwise-Key: {served.key}"
        client.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        said = b""
        while b'"done"' not in said:
            said += client.recv(1000)
    end = time.monotonic() + PATIENCE
    while before.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
    assert not before.is_alive()
    assert asked(served, LOOK)[0] == 200


def test_what_takes_too_long_is_stopped(served, monkeypatch):
    monkeypatch.setattr(local, "_SECONDS", 0.01)
    _, lines = asked(served, {**LOOK, "ask": "fit"}, "slow")
    assert "was stopped" in json.loads(lines[-1]["answer"])["error"]


def test_a_process_that_dies_is_one_sentence(served):
    asked(served, LOOK)
    served.answerers["/ask/quick"]._pipe.send_bytes(b"\xff\n")  # not what the server sends: it ends the process
    _, lines = asked(served, LOOK)
    assert not json.loads(lines[-1]["answer"])["ok"]
    assert json.loads(asked(served, LOOK)[1][-1]["answer"])["ok"]


def test_every_file_of_the_page_is_there():
    files = local_files()
    assert files.keys() >= {"index.html", "style.css", "chart.js", "worker.js", "sw.js", "main.js"}
    offered = re.findall(r"'([\w-]+\.(?:yml|log))':", files["main.js"])
    assert len(offered) == 7
    assert {f"examples/{name}" for name in offered} < files.keys()
    assert {path.name for path in ASSETS.iterdir()} - files.keys() == {"app.css", "local_worker.js", "local_sw.js"}
    assert not re.search(r"\$[a-z]", files["index.html"])
    assert "wasm" not in files["index.html"] + files["worker.js"]


def test_the_command_serves_until_it_is_interrupted():
    command = [sys.executable, "-m", "vramwise", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/#key=", process.stderr.readline())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/")
        assert b'data-build="local"' in connection.getresponse().read()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
