"""Targets and verdicts for tests, without a look at the machine they run on."""

from vramwise.documents.document import parse_document
from vramwise.opening.stacks import make_stack
from vramwise.opening.subject import on_target
from vramwise.opening.targets import make_target as build_target
from vramwise.rules.base import Rule
from vramwise.trainers.recognise import Foreign, recognise
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.verbs.check import Policy, check_subject


def make_target(*, torch=None, versions=(), env=None, look_around=False, trainer="axolotl", **words):
    """A target by words; `versions` as in `--with`, e.g. ("axolotl==0.19.0",)."""
    package = trainer_named(trainer).package
    releases = trainer_named(trainer).releases()
    stack = make_stack(package, releases, said=versions, torch=torch, look_around=look_around)
    return build_target(stack=stack, env=env or {}, look_around=look_around, **words)


def resolve(document, target, trainer="axolotl"):
    return on_target(document, trainer_named(trainer), target).run


def subject_of_text(text, target=None, trainer="axolotl"):
    document = parse_document("config.yml", text.encode())
    return on_target(document, trainer_named(trainer), target or make_target(trainer=trainer))


def check_document(document, target, rules: list[Rule] | None = None, *, predicts=False):
    """What some rules (all, where none is named) say of a document."""
    policy = Policy(select=tuple(rule.id for rule in rules or ()), predicts=predicts)
    return check_subject(on_target(document, trainer_named(trainer_name(document)), target), policy)


def example_document(text):
    """A rule's example: YAML, JSON, or a script."""
    if "import " in text.partition("\n")[0]:
        return read_script("example.py", text.encode(), Reading())
    return parse_document("example.json" if text.startswith("{") else "example.yml", text.encode())


def trainer_name(document):
    """Whose example it is; one that says too little is Axolotl's."""
    if document.script is not None:
        kind = document.script.kind
        return f"{document.script.trainer}:{kind}" if kind else document.script.trainer
    found = recognise(document.values)
    return "axolotl" if isinstance(found, Foreign) else found.name
