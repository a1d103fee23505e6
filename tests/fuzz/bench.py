"""One execution: the real command line, in-process, in a folder of its own, and what must hold whatever it was given.

Held against every execution: no traceback, an exit code of 0, 1 or 2, at most `LIMIT_S` of processor time, no control
character in what reaches a terminal, no workflow command made by a value, JSON that parses, HTML that runs nothing of
the input's, no process started, no connection made, no name looked up by a pickle, nothing written outside the folder.
"""

import contextlib
import faulthandler
import gc
import io
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

LIMIT_S, LIMIT_OF_FIT_S = 10, 20
# Written into inputs by the generators: in a page it must come out escaped.
HTML_MARK = "<img src=x"
# What a terminal obeys: C0 but newline, DEL, C1.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")
# A config is shown as it is by `fix -` and `fix --diff`; YAML itself allows no more than these.
CONFIG_TEXT = "\t\r\x85"
# A fault that was caught and told in a sentence is a fault all the same.
_BUG = "bug in vramwise"
_FRAME = re.compile(r'File "[^"]*?((?:vramwise|tests)/[^"]+)", line \d+, in (\S+)')
_FORBIDDEN = (
    "socket.connect",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "pickle.find_class",
)
_DISK = (
    "os.remove",
    "os.rmdir",
    "os.rename",
    "os.mkdir",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.symlink",
    "os.link",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Failure(Exception):  # noqa: N818 (it reads as what happened)
    """What did not hold. Failures of the same kind at the same place are one."""

    def __init__(self, kind, place, detail=""):
        super().__init__(f"{kind} at {place}")
        self.kind, self.place, self.detail = kind, place, detail


class TooSlow(BaseException):
    """Raised by the timer; a BaseException, so that no `except Exception` swallows it."""


class Forbidden(BaseException):
    """Raised where an input made the program reach for something it must never touch."""


@dataclass(frozen=True)
class Result:
    """What a command gave."""

    code: int
    out: str
    err: str


class Bench:
    """A folder to work in and the watch over what is done there."""

    def __init__(self, folder):
        self.folder = Path(os.path.realpath(folder))
        self.argv = ()
        self.bug = None
        # The same ones for every command: click keeps each stream that it has seen for ever.
        self._streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(3)]
        self.limit_s = LIMIT_S
        self._watching = False
        self._reached = []
        self._slow_at = ""

    def install(self):
        """Make this process a bench: its folder, a quiet environment, the timer and the audit hook."""
        faulthandler.enable()
        sys.dont_write_bytecode = True
        os.chdir(self.folder)
        for name in [name for name in os.environ if name.endswith("ALLOC_CONF") or name.startswith(("HF_", "XDG_"))]:
            del os.environ[name]
        os.environ.update(HOME=str(self.folder), HF_HUB_OFFLINE="1", NO_COLOR="1", VRAMWISE_TRACE="0")
        import vramwise.facts.torch
        import vramwise.opening.targets

        # No card and no torch of this machine: the same input does the same everywhere.
        vramwise.opening.targets.local_gpu = lambda **_: None
        vramwise.facts.torch.installed_torch = lambda: None
        self._see_bugs()
        signal.signal(signal.SIGPROF, self._ring)
        sys.addaudithook(self._audit)
        return self

    def _see_bugs(self):
        """Remember the exception behind each sentence about a bug: where it was raised tells two of them apart."""
        import vramwise.errors

        describe = vramwise.errors.describe_internal_error

        def seen(what, error):
            self.bug = error
            return describe(what, error)

        for module in [module for name, module in sys.modules.items() if name.startswith("vramwise")]:
            if getattr(module, "describe_internal_error", None) is describe:
                module.describe_internal_error = seen

    def write(self, name, data):
        """An input file; its name, for the command line."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def command(self, *argv, stdin=b"", allow="", workflow=False, own_text=False):
        """Run `vramwise …`; `allow`: control characters that may come out; `workflow`: so may workflow commands;
        `own_text`: stdout is the user's own text, which goes to a program as it is."""
        from vramwise.cli.main import main

        self.argv = argv
        out, err, given = (
            _refilled(stream, data) for stream, data in zip(self._streams, (b"", b"", stdin), strict=True)
        )
        streams = {"stdout": out, "stderr": err, "stdin": given}
        code = 0
        with self.watched("vramwise " + str(argv[0])), mock.patch.multiple(sys, argv=["vramwise", *argv], **streams):
            try:
                main()
            except SystemExit as left:
                code = left.code
            out.flush(), err.flush()
        gc.set_threshold(50_000, 10, 10)  # the command collects hardly ever, as its process would end now
        texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]
        result = Result(code, *texts)
        _judge(result, argv, allow, workflow, own_text)
        return result

    def command_json(self, *argv, **more):
        """Run a command whose standard output must be JSON."""
        result = self.command(*argv, **more)
        if result.code != 2 or result.out.strip():
            try:
                return json.loads(result.out, parse_constant=_no_constant)
            except ValueError as error:
                raise Failure("not JSON", str(argv[0]), f"{error}: {result.out[:200]!r}") from None
        return None

    def command_html(self, *argv, **more):
        """Run a command that writes page.html."""
        page = self.folder / "page.html"
        page.unlink(missing_ok=True)
        result = self.command(*argv, "--html", "page.html", **more)
        if page.exists():
            text = page.read_text(encoding="utf-8", errors="surrogateescape")
            _no_control(text, argv, "page", allow="\t")
            if HTML_MARK in text:
                raise Failure("unescaped in HTML", str(argv[0]), _around(text, text.index(HTML_MARK)))
        return result

    @contextlib.contextmanager
    def watched(self, what):
        """Code under the watch; a VramwiseError is a fair answer and ends it quietly, unless it is about a bug."""
        from vramwise.errors import VramwiseError

        self._reached.clear()
        self.bug = None
        self.limit_s = LIMIT_OF_FIT_S if what == "vramwise fit" else LIMIT_S
        signal.setitimer(signal.ITIMER_PROF, self.limit_s)
        self._watching = True
        try:
            yield
        except VramwiseError:
            pass
        except TooSlow:
            raise Failure("slow", self._slow_at, f"more than {self.limit_s} s of processor time") from None
        except Forbidden:
            pass
        except Failure:
            raise
        except BaseException as error:
            raise crash(error) from None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._watching = False
        if self.bug is not None:
            raise crash(self.bug)
        if self._reached:
            raise Failure(f"reaches for {self._reached[0][0]}", what, str(self._reached))

    def _ring(self, _signal, frame):
        import traceback

        # The frame of the rule or the reader that it is in says more than the innermost helper.
        self._slow_at = _last_frame("".join(traceback.format_stack(frame)))
        raise TooSlow

    def _audit(self, event, arguments):
        if not self._watching:
            return
        bad = event in _FORBIDDEN and not _own_child(event, arguments)
        if event == "open":
            bad = bool((arguments[2] or 0) & _WRITES) and self._outside(arguments[0])
        elif event in _DISK or event == "shutil.rmtree":
            bad = self._outside(arguments[0])
        if bad:
            self._reached.append((event, repr(arguments)[:200]))
            raise Forbidden(event)

    def _outside(self, name):
        if isinstance(name, int):
            return False
        path = os.path.realpath(os.fsdecode(name))
        return path != os.devnull and not path.startswith(str(self.folder))


def _own_child(event, arguments):
    """Whether it is this Python with a module of the package: what decodes files in a confined process."""
    if event != "subprocess.Popen" or arguments[0] != sys.executable:
        return False
    return any(str(word).startswith("vramwise.") for word in arguments[1])


def _refilled(stream, data):
    """A text stream over other bytes, at its beginning."""
    stream.seek(0)
    stream.truncate()
    stream.buffer.write(data)
    stream.seek(0)
    return stream


def crash(error):
    """The failure that an exception is."""
    import traceback

    text = "".join(traceback.format_exception(error))
    return Failure(type(error).__name__, _last_frame(text), text[-3000:])


def _judge(result, argv, allow, workflow, own_text):
    trace = re.search(r"^Traceback \(most recent call last\):\n(?:.*\n)*?(\w[\w.]*)(?::.*)?$", result.err, re.MULTILINE)
    if trace:
        raise Failure(trace[1], _last_frame(result.err), result.err[-3000:])
    said = result.err + "\n" + result.out
    if _BUG in said:
        raise Failure("internal error", str(argv[0]), said[max(0, said.index(_BUG) - 300) : said.index(_BUG) + 100])
    if result.code not in (0, 1, 2):
        raise Failure(f"exit code {result.code}", str(argv[0]), result.err[-300:])
    if not own_text:
        _no_control(result.out, argv, "stdout", allow)
    _no_control(result.err, argv, "stderr", allow)
    command = re.search(r"^::.*", result.out + "\n" + result.err, re.MULTILINE)
    if command and not workflow:
        raise Failure("workflow command", str(argv[0]), command[0])


def _no_control(text, argv, stream, allow):
    for found in _CONTROL.finditer(text):
        if found[0] not in allow:
            kind = "C1 control" if found[0] >= "\x7f" else "control character"
            raise Failure(kind, f"{argv[0]} {stream}", repr(_around(text, found.start())))


def _around(text, at):
    return text[max(0, at - 60) : at + 100]


def _last_frame(text):
    frames = [frame for frame in _FRAME.findall(text) if not frame[0].startswith("tests/")]
    return ":".join(frames[-1]) if frames else "outside vramwise"


def _no_constant(word):
    raise ValueError(f"{word} is not JSON")
