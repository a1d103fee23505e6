"""What was skipped, at the end of a run: one line a reason, with the number of tests."""

from collections import Counter

import pytest

EMPTY = "got empty parameter set"


def pytest_addoption(parser) -> None:
    """For runs that must have everything the tests need."""
    parser.addoption("--no-skips", action="store_true", help="fail when a test is skipped")


def pytest_sessionfinish(session) -> None:
    """Fail a run that passed, but skipped what it was started for."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.option.no_skips and reporter and reporter.stats.get("skipped") and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def reason_of(report) -> str:
    """Why one test, or one file of tests, was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    return (
        "no files to compare with: put the corpus and the recordings in ../shared"
        if reason.startswith(EMPTY)
        else reason
    )


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the reasons, most frequent first."""
    counts = Counter(map(reason_of, terminalreporter.stats.get("skipped", ())))
    if counts:
        terminalreporter.section(f"{counts.total()} skipped", sep="-")
    for reason, count in counts.most_common():
        terminalreporter.line(f"{count:6d}  {reason}")
