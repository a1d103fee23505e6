"""Late imports hide what a room depends on: few remain, each with its reason. `scripts/import_graph.py --late` lists them."""

import pytest

import import_graph

# The last one came with `%load_ext vramwise`, which looks for its function in the package itself.
MOST_LATE_IMPORTS = 21


@pytest.fixture(scope="module")
def late():
    return import_graph.late()


def test_late_imports_across_rooms_become_fewer(late):
    assert len(late) <= MOST_LATE_IMPORTS, "\n".join(f"{one.importer}:{one.line} {one.imported}" for one in late)


def test_every_late_import_across_rooms_says_why(late):
    assert [f"{one.importer}:{one.line} {one.imported}" for one in late if not one.reason] == []


def test_a_reason_is_read_from_the_line_or_from_above_its_block(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "def one():\n"
        "    from vramwise.units import gib  # late: slow to load\n"
        "def two():\n"
        "    # Late: slow to load.\n"
        "    from vramwise.units import gib\n"
        "    from vramwise.units import mib\n"
        "def three():\n"
        "    # a comment\n"
        "    gib = 1\n"
        "    from vramwise.units import mib\n"
    )
    found = [import_graph.Import(path, line, "vramwise.units", True).reason for line in (2, 5, 6, 10)]
    assert found == ["slow to load", "slow to load.", "slow to load.", ""]
