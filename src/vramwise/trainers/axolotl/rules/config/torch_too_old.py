"""torch-too-old"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import known_releases, schema_of, schema_of_version
from vramwise.trainers.axolotl.schema.pins import admits, shown_range
from vramwise.types import RunSpec, Severity


@rule(
    id="torch-too-old",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\n",
    good="base_model: meta-llama/Llama-3.2-1B\n",
    options="--torch 2.9",
    good_options="--torch 2.14",
    beyond_trainer="Axolotl warns of an old torch at most; which torch a release installs with is in its requirements.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The target's torch is older, or newer, than this version of Axolotl installs with.

    Every release binds torch to a range: 0.19 to 2.11–2.13, 0.21 to 2.13 and 2.14. Another torch can be put in by hand,
    and often works, but nobody has tried it with that release: kernels that are compiled for one torch may not load,
    and defaults that depend on it may differ from what is judged here.

    Install a torch of the range, or say which Axolotl you run (`--with axolotl==0.19.0`): the message names the newest
    release that takes this torch. Where nobody said a version of Axolotl this is only a note.
    """
    schema, have = schema_of(run), run.target.stack.parts("torch")
    wanted = schema.pins["torch"]
    if admits(wanted, have):
        return
    takers = [version for version in known_releases() if admits(schema_of_version(version).pins["torch"], have)]
    taker = f"; Axolotl {schema_of_version(takers[-1]).short} takes it" if takers else ""
    shown = ".".join(str(part) for part in have)
    assumed = run.target.stack.releases["axolotl"].origin.kind == "assumed"
    said = run.target.stack.releases["torch"].origin.kind in ("option", "file")
    yield Hit(
        message=f"Axolotl {schema.short} installs with torch {shown_range(wanted)}, this is torch {shown}{taker}",
        severity=Severity.INFO if assumed and not said else None,
    )
