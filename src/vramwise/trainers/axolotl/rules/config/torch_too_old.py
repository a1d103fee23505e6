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
    beyond_trainer="Axolotl at most warns about an old torch; the supported range is in its requirements.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The target's torch is outside the range that this version of Axolotl requires.

    Every release requires a range of torch versions: 0.19 requires 2.11–2.13, 0.21 requires 2.13 or 2.14. You can
    install another torch by hand, and it often works, but it is untested with that release. Kernels compiled for
    another torch may not load, and defaults that depend on torch may differ from those assumed here.

    Install a torch in the range, or say which Axolotl you run (`--with axolotl==0.19.0`): the message names the newest
    release that supports this torch. If the version of Axolotl is not given, the finding is only a note.
    """
    schema, have = schema_of(run), run.target.stack.parts("torch")
    wanted = schema.pins["torch"]
    if admits(wanted, have):
        return
    takers = [version for version in known_releases() if admits(schema_of_version(version).pins["torch"], have)]
    taker = f"; Axolotl {schema_of_version(takers[-1]).short} supports it" if takers else ""
    shown = ".".join(str(part) for part in have)
    assumed = run.target.stack.releases["axolotl"].origin.kind == "assumed"
    said = run.target.stack.releases["torch"].origin.kind in ("option", "file")
    yield Hit(
        message=f"Axolotl {schema.short} requires torch {shown_range(wanted)}, but this is torch {shown}{taker}",
        severity=Severity.INFO if assumed and not said else None,
    )
