"""Configs through `fix`: only the keys that a fix names change, no comment is lost, twice is once, it reads back."""

from collections import Counter
from itertools import pairwise

from tests.fuzz.bench import CONFIG_TEXT, Failure
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import api_options, mostly_tiny, write_model


def fixed(*, unsafe, gpu=None):
    """A check that mends a config twice and holds what came of it against the laws."""

    def run(bench, data):
        from vramwise import api

        write_model(bench)
        name = bench.write("config.yml", data)
        options = api_options(data, gpu=gpu)
        reports = []
        with bench.watched("fix"):
            reports = api.fix(name, **options, unsafe=unsafe)
            reports += api.fix(name, **options, unsafe=unsafe)
        written = (bench.folder / name).read_bytes()
        if options["trainer"] is None:  # else it was said whose file it is
            leave_foreign_alone(written, data)
        if len(reports) == 2:
            _laws(reports, written, data)

    return run


def leave_foreign_alone(written, data):
    """A file that is recognised as somebody else's, or that cannot be read, stays as it was."""
    from vramwise.documents.document import parse_document
    from vramwise.errors import ConfigError
    from vramwise.trainers.recognise import Foreign, recognise

    if written == data:
        return
    try:
        whose = recognise(parse_document("config.yml", data).values)
    except ConfigError:
        raise Failure("fix", "wrote into a file that cannot be read") from None
    if isinstance(whose, Foreign):
        raise Failure("fix", f"wrote into a foreign file: {whose.what}")


def _laws(reports, written, data):
    first, second = reports
    if not first.changed:
        _hold(written == data, "a file without fixes was written", first)
        return
    _hold(not second.changed, "the second run changed it again", second)
    _hold(written == first.after.text.encode(), "the file differs from what was reported", first)
    named = [edit.key for finding in first.applied for edit in finding.fix.edits]
    for path in differing(first.before.values, first.after.values, ()):
        _hold(any(covers(key, path) for key in named), f"{path[0]} changed, which no fix names", first)
    lost = _comments(first.before.text) - Counter(first.after.text.splitlines())
    _hold(not lost, "a comment was lost", first)
    _reads_back(first)


def _reads_back(report):
    from vramwise.documents.document import parse_document

    again = parse_document("config.yml", report.after.text.encode())
    _hold(repr(again.values) == repr(report.after.values), "it reads back differently", report)


def _hold(law, otherwise, report):
    if not law:
        rules = sorted({finding.rule for finding in report.applied})
        raise Failure("fix", f"{otherwise} ({', '.join(rules)[:80]})")


def differing(before, after, path):
    """The paths, as tuples of keys, at which two values differ, as deep as both are mappings."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if key in before and key in after:
                yield from differing(before[key], after[key], (*path, key))
            else:
                yield (*path, key)
    elif repr(before) != repr(after):
        yield path


def covers(key, path):
    """Whether an edit of a dotted key may change what is at a path."""
    from vramwise.types.document import split_key

    named, path = [[str(part) for part in one] for one in (split_key(key), path)]
    shorter = min(len(named), len(path))
    return named[:shorter] == path[:shorter]


def _comments(text):
    """Lines that are surely comments of their own: at the margin, before a key, where nothing can be quoted."""
    lines = text.splitlines()
    if any(mark in text for mark in "|>\x85\u2028\u2029") or any(_odd_quotes(line) for line in lines):
        return Counter()
    return Counter(line for line, after in pairwise(lines) if line.startswith("#") and after[:1].isalpha())


def _odd_quotes(line):
    return line.count("'") % 2 or line.count('"') % 2


def _shown(*words):
    def run(bench, data):
        bench.command("fix", *words, bench.write("config.yml", data), allow=CONFIG_TEXT)
        if "--diff" in words and (bench.folder / "config.yml").read_bytes() != data:
            raise Failure("fix", "--diff wrote the file")

    return run


def _from_stdin(bench, data):
    bench.command("fix", "--unsafe-fixes", "-", stdin=data, allow=CONFIG_TEXT)


def _mended_check(bench, data):
    bench.command("check", "--fix", "--unsafe-fixes", bench.write("config.yml", data), allow=CONFIG_TEXT)
    leave_foreign_alone((bench.folder / "config.yml").read_bytes(), data)


add(
    name="fix",
    about="config text → `fix`, safe and unsafe: laws on keys, comments, repetition, reading back; diff, stdin",
    extension="yml",
    make=mostly_tiny,
    checks={
        "safe": fixed(unsafe=False),
        "unsafe": fixed(unsafe=True),
        "safe-t4": fixed(unsafe=False, gpu="t4"),
        "unsafe-h100": fixed(unsafe=True, gpu="h100"),
        "diff": _shown("--diff", "--unsafe-fixes"),
        "stdin": _from_stdin,
        "check": _mended_check,
    },
)
