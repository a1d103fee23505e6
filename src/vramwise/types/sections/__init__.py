"""The sections of a RunSpec: one frozen type per file, without defaults, each with one neutral value.

`NEUTRAL` is the section of a run that does not use the feature; `NEUTRAL_WHY` says so to the user. A trainer sets what
it uses and takes the rest from there (`trainers/fields.py`).
"""
