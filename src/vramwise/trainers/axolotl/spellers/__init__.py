"""A field of RunSpec with its new value → edits of the file, in the spelling it uses; a file a topic.

Each `SPELLERS` maps a field to what spells it: edits, none where the file says so already, or None where another key
of the file stands against the value.
"""
