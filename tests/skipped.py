"""What was skipped, at the end of a run: one line a reason, with the number of tests."""

from collections import Counter

EMPTY = "got empty parameter set"


def reason_of(report) -> str:
    """Why one test, or one file of tests, was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    return "no recorded files to compare with: see ../shared in the tests" if reason.startswith(EMPTY) else reason


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the reasons, most frequent first."""
    counts = Counter(map(reason_of, terminalreporter.stats.get("skipped", ())))
    if counts:
        terminalreporter.section(f"{counts.total()} skipped", sep="-")
    for reason, count in counts.most_common():
        terminalreporter.line(f"{count:6d}  {reason}")
