"""The sections of a RunSpec: one frozen type a file, without defaults, each with one neutral value.

`NEUTRAL` is the section of a run that does nothing of the kind, `NEUTRAL_WHY` says so for a person. A trainer fills
what it does and takes the rest from there (`trainers/fields.py`), so every neutral value is written once.
"""
