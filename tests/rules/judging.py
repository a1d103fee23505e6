"""Judge a YAML text with one rule: for the tests of rules beyond their own examples."""

from opened import check_document, make_target, trainer_name
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits


def judge(rule, text, **options):
    document = parse_document("config.yml", text.encode())
    target = make_target(env={}, look_around=False, trainer=trainer_name(document), **options)
    return document, check_document(document, target, [rule]).findings


def messages(rule, text, **options):
    return [found.message for found in judge(rule, text, **options)[1]]


def severities(rule, text, **options):
    return [found.severity.value for found in judge(rule, text, **options)[1]]


def fixed(rule, text, **options):
    """The text after the only finding's fix, and whether the fix is safe."""
    document, [found] = judge(rule, text, **options)
    return apply_edits(document, found.fix.edits).text, found.fix.safe
