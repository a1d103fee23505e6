"""Late imports hide what a room depends on: their number may only fall. `python scripts/import_graph.py --late` lists them."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "import_graph.py"
MOST_LATE_IMPORTS = 80


def test_late_imports_across_rooms_become_fewer():
    spec = importlib.util.spec_from_file_location("import_graph", SCRIPT)
    graph = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(graph)
    late = graph.late()
    assert len(late) <= MOST_LATE_IMPORTS, "\n".join(f"{one.importer}:{one.line} {one.imported}" for one in late)
