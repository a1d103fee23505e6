"""Asking the hub for a config.json, against a hub on the loopback: what goes out, what is kept, what is refused."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vramwise.errors import VramwiseError
from vramwise.models import hub
from vramwise.models.known import find_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


class Loopback:
    """A hub: answers by path, and notes what it was asked."""

    def __init__(self):
        self.asked = []
        self.answers = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Authorization")))
                answer = outer.answers.get(self.path, (404, b"", {}))
                if callable(answer):
                    answer = answer()
                code, body, headers = answer
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=lambda: self.server.serve_forever(0.01), daemon=True).start()

    def gives(self, path, body=None, code=200, **headers):
        data = json.dumps(CONFIG if body is None else body).encode() if not isinstance(body, bytes) else body
        self.answers[path] = (code, data, headers)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def loopback(monkeypatch, tmp_path):
    made = Loopback()
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield made
    made.close()


PLACE = "/me/model/resolve/main/config.json"


class TestAsked:
    def test_an_unknown_model_is_asked_for_and_kept(self, loopback):
        loopback.gives(PLACE)
        assert find_model("me/model", online=True).hidden_size == 64
        assert find_model("me/model", online=True).hidden_size == 64
        assert loopback.asked == [(PLACE, None)]

    def test_what_was_kept_is_known_offline_too(self, loopback):
        loopback.gives(PLACE)
        find_model("me/model", online=True)
        assert find_model("me/model").vocab_size == 100

    def test_it_is_asked_for_again_after_a_week_and_kept_where_nobody_answers(self, loopback, monkeypatch):
        loopback.gives(PLACE)
        find_model("me/model", online=True)
        later = time.time() + 8 * 24 * 3600
        monkeypatch.setattr(hub.time, "time", lambda: later)
        loopback.answers.clear()
        assert find_model("me/model", online=True).hidden_size == 64
        assert len(loopback.asked) == 2

    def test_a_known_model_is_never_asked_for(self, loopback):
        find_model("Qwen/Qwen3-8B", online=True)
        assert loopback.asked == []

    def test_nothing_is_asked_unless_allowed(self, loopback):
        with pytest.raises(VramwiseError, match="unknown"):
            find_model("me/model")
        assert loopback.asked == []

    @pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
    def test_the_variable_forbids_it(self, loopback, monkeypatch, variable):
        monkeypatch.setenv(variable, "1")
        with pytest.raises(VramwiseError, match=f"{variable} is set"):
            find_model("me/model", online=True)
        assert loopback.asked == []

    def test_another_revision(self, loopback):
        loopback.gives("/me/model/resolve/v2%2Ffinal/config.json")
        assert find_model("me/model", online=True, revision="v2/final").hidden_size == 64

    @pytest.mark.parametrize("name", ["me/../model", "me", "/models/x", "me/model/more", "me/mo del"])
    def test_what_is_no_id_is_not_asked_for(self, loopback, name):
        with pytest.raises(VramwiseError):
            find_model(name, online=True)
        assert loopback.asked == []

    def test_a_revision_cannot_leave_the_cache(self, loopback):
        with pytest.raises(VramwiseError, match="not a valid hub id"):
            find_model("me/model", online=True, revision="../../etc")


class TestToken:
    def test_it_goes_to_the_hub(self, loopback, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        loopback.gives(PLACE)
        find_model("me/model", online=True)
        assert loopback.asked == [(PLACE, "Bearer hf_secret")]

    def test_it_follows_within_the_hub(self, loopback, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        loopback.gives(PLACE, b"", 307, Location="/me/renamed/resolve/main/config.json")
        loopback.gives("/me/renamed/resolve/main/config.json")
        find_model("me/model", online=True)
        assert [token for _, token in loopback.asked] == ["Bearer hf_secret", "Bearer hf_secret"]

    def test_it_does_not_go_to_another_host(self, loopback, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        other = Loopback()
        try:
            other.gives("/elsewhere.json")
            loopback.gives(PLACE, b"", 302, Location=f"{other.url}/elsewhere.json")
            assert find_model("me/model", online=True).hidden_size == 64
            assert other.asked == [("/elsewhere.json", None)]
        finally:
            other.close()

    def test_a_redirect_to_a_file_is_not_followed(self, loopback):
        loopback.gives(PLACE, b"", 302, Location="file:///etc/passwd")
        with pytest.raises(VramwiseError, match="unknown"):
            find_model("me/model", online=True)


class TestRefused:
    @pytest.mark.parametrize(
        ("code", "said"),
        [(401, "set HF_TOKEN"), (403, "private, gated"), (404, "does not exist"), (500, "answered 500"), (429, "429")],
    )
    def test_an_error_is_a_sentence(self, loopback, code, said):
        loopback.gives(PLACE, b"", code)
        with pytest.raises(VramwiseError, match=said):
            find_model("me/model", online=True)

    def test_a_token_that_may_not_read_it(self, loopback, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        loopback.gives(PLACE, b"", 403)
        with pytest.raises(VramwiseError, match="the token in HF_TOKEN may not") as caught:
            find_model("me/model", online=True)
        assert "hf_secret" not in str(caught.value)

    def test_too_large(self, loopback):
        loopback.gives(PLACE, b" " * (hub.LARGEST_BYTES + 1))
        with pytest.raises(VramwiseError, match="above 4 MiB"):
            find_model("me/model", online=True)

    @pytest.mark.parametrize("body", [b"<html>", b"[1, 2]", b"", b"[" * 100_000])
    def test_no_json_object(self, loopback, body, tmp_path):
        loopback.gives(PLACE, body)
        with pytest.raises(VramwiseError, match=r"config\.json there that is no"):
            find_model("me/model", online=True)
        assert not list((tmp_path / "cache").rglob("config.json"))

    def test_nobody_answers_in_time(self, loopback, monkeypatch):
        monkeypatch.setattr(hub, "SECONDS", 0.2)
        done = threading.Event()

        def slow():
            done.wait(120)
            return 200, b"{}", {}

        loopback.answers[PLACE] = slow
        start = time.monotonic()
        with pytest.raises(VramwiseError, match=r"within 0\.2 s"):
            find_model("me/model", online=True)
        assert time.monotonic() - start < 60  # the answer would come later, however busy the machine is
        done.set()

    def test_nobody_is_there(self, loopback, monkeypatch):
        loopback.close()
        with pytest.raises(VramwiseError, match="could not be fetched"):
            find_model("me/model", online=True)

    def test_an_endpoint_that_is_none(self, loopback, monkeypatch):
        monkeypatch.setenv("HF_ENDPOINT", "ftp://example.org")
        with pytest.raises(VramwiseError, match="HF_ENDPOINT"):
            find_model("me/model", online=True)

    def test_a_folder_that_cannot_be_written(self, loopback, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        loopback.gives(PLACE)
        with pytest.raises(VramwiseError, match="cannot be saved"):
            find_model("me/model", online=True)


class TestVerbs:
    def config(self, tmp_path, **more):
        path = tmp_path / "run.yaml"
        values = {"base_model": "me/model", "sequence_len": 64, "micro_batch_size": 1, "datasets": [{"path": "x"}]}
        path.write_text(json.dumps({**values, "gradient_accumulation_steps": 1, "learning_rate": 1e-4, **more}))
        return path

    def test_predict_asks(self, loopback, vramwise, tmp_path):
        loopback.gives(PLACE)
        assert vramwise("predict", self.config(tmp_path)).exit_code == 0
        assert [path for path, _ in loopback.asked] == [PLACE]

    def test_predict_asks_for_the_revision_of_the_config(self, loopback, vramwise, tmp_path):
        loopback.gives("/me/model/resolve/v2/config.json")
        assert vramwise("predict", self.config(tmp_path, revision_of_model="v2")).exit_code == 0

    def test_predict_offline_does_not(self, loopback, vramwise, tmp_path):
        assert vramwise("predict", "--offline", self.config(tmp_path)).exit_code == 2
        assert loopback.asked == []

    def test_check_does_not(self, loopback, vramwise, tmp_path):
        vramwise("check", "--gpu", "h100", self.config(tmp_path))
        assert loopback.asked == []

    def test_a_name_takes_over_where_the_hub_is_silent(self, loopback, vramwise, tmp_path):
        result = vramwise("predict", self.config(tmp_path, base_model="me/OpenHermes-2.5-Mistral-7B"))
        assert result.exit_code == 0
        assert "is unknown, its shape is that of mistralai/Mistral-7B-v0.1" in result.output.replace("\n", " ")
