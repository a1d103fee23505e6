"""`vramwise serve` under many clients at once: what it hands out, and what its memory does.

    python bench/serve_soak.py [--clients 200] [--seconds 60] [--folder dist/page]

Clients load the whole page over and over; beside them some send their request a letter at a time and some take nothing
of what they asked for. Only this machine's loopback address is asked.
"""

import argparse
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
SLOW = 20
PATIENCE = 60
# Seconds before it counts, and until all that was begun has ended: who speaks slowly is let go by then.
WARM = 5
REST = 12


@dataclass
class Tally:
    """What the clients saw."""

    port: int
    files: list[str]
    end: float
    answers: int = 0
    received: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, first: int) -> None:
        """Load file after file until the time is over."""
        turn = first
        while time.monotonic() < self.end:
            name = self.files[turn % len(self.files)]
            turn += 1
            began, size, said = time.monotonic(), 0, ""
            try:
                size, said = self.loaded(name)
            except (OSError, http.client.HTTPException) as error:
                said = f"{name}: {error!r}"
            with self.lock:
                self.answers += 1
                self.received += size
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.wrong += [said] if said else []

    def loaded(self, name: str) -> tuple[int, str]:
        """How much came, and what was wrong with it."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE)
        try:
            connection.request("GET", f"/{name}")
            answer = connection.getresponse()
            size = 0
            while piece := answer.read(1 << 18):
                size += len(piece)
            return size, "" if answer.status == 200 else f"{name}: {answer.status}"
        finally:
            connection.close()

    def whisperer(self) -> None:
        """A request, a letter at a time, over and over."""
        while time.monotonic() < self.end:
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=PATIENCE) as client:
                for letter in "GET / HTTP/1.1\r\nX: " + "a" * 1000:
                    if time.monotonic() > self.end:
                        return
                    client.sendall(letter.encode())
                    time.sleep(0.5)

    def idler(self) -> None:
        """A large file asked for, and nothing taken."""
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=PATIENCE) as client:
            client.sendall(f"GET /{self.files[-1]} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\n\r\n".encode())
            time.sleep(max(0.0, self.end - time.monotonic()))


def main() -> None:
    """Start the server, let the clients in, and say what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist" / "page")
    asked = parser.parse_args()
    found = sorted(filter(Path.is_file, asked.folder.rglob("*")), key=lambda path: path.stat().st_size)
    files = [path.relative_to(asked.folder).as_posix() for path in found]  # the largest last
    command = [sys.executable, "-m", "vramwise", "serve", "--port", "0", "--folder", str(asked.folder)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = re.search(r":(\d+)/", server.stderr.readline() if server.stderr else "")
        assert said, "the server did not say where it listens"
        port = int(said[1])
        soak(Tally(port, files, time.monotonic() + WARM), asked.clients, server.pid)  # taken once: no leak
        time.sleep(REST)
        before = state(server.pid)
        tally = Tally(port, files, time.monotonic() + asked.seconds)
        during = soak(tally, asked.clients, server.pid)
        time.sleep(REST)
        after = state(server.pid)
    finally:
        server.terminate()
        server.wait(30)
    tell(asked, tally, before, during, after)


def soak(tally: Tally, clients: int, pid: int) -> dict[str, int]:
    """All clients until the tally's time is over; the most that the server took meanwhile."""
    asks = [threading.Thread(target=tally.client, args=(turn,)) for turn in range(clients)]
    if clients > SLOW:
        asks += [threading.Thread(target=slow) for slow in [tally.whisperer] * SLOW + [tally.idler] * SLOW]
    for one in asks:
        one.start()
    most = state(pid)
    while any(one.is_alive() for one in asks):
        now = state(pid)
        most = {name: max(most[name], now[name]) for name in now}
        time.sleep(0.2)
    return most


def state(pid: int) -> dict[str, int]:
    """The server's memory, threads and open files."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1]) for name in ("VmRSS", "Threads")}
    return {
        "rss_mib": found["VmRSS"] // 1024,
        "threads": found["Threads"],
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def tell(asked: argparse.Namespace, tally: Tally, *states: dict[str, int]) -> None:
    """One line of JSON; exit code 1 where an answer was wrong or memory stayed."""
    before, during, after = states
    said = {
        "clients": asked.clients,
        "slow_clients": 2 * SLOW,
        "seconds": asked.seconds,
        "answers": tally.answers,
        "gib": round(tally.received / 2**30, 1),
        "wrong": len(tally.wrong),
        "slowest_s": round(tally.slowest, 1),
        "before": before,
        "during": during,
        "after": after,
    }
    print(json.dumps(said))
    for line in tally.wrong[:5]:
        print(line, file=sys.stderr)
    grown = after["rss_mib"] - before["rss_mib"]
    sys.exit(1 if tally.wrong or grown > 5 or after["threads"] > before["threads"] else 0)


if __name__ == "__main__":
    main()
