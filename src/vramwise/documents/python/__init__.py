"""Reads Python scripts and notebooks as documents: the arguments of training calls. Nothing is run.

source     text of a script, or of a notebook's cells → syntax tree, cells, versions that `pip install` names
scopes     which name is bound where, under which conditions
evaluate   the result of an expression: a value, a call, or what is missing
functions  calls of known functions: arithmetic, paths, environment, questions about the card
flags      defaults of argparse, click, typer, fire and dataclasses
edit       edits of literals and keyword arguments in the source
"""
