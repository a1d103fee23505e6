"""Python source and notebooks as documents: what a training call is given, read from the syntax tree. Nothing is run.

source     text of a script, or of a notebook's cells → syntax tree, cells, versions that `pip install` names
scopes     which name is bound where, under which conditions
evaluate   what an expression is: a value, a call, or what is missing to know it
functions  the functions that are evaluated: arithmetic, paths, environment, what the card decides
flags      defaults of argparse, click, typer, fire and dataclasses
edit       changes of keyword arguments, where they are written
"""
