"""Models written in ghost ops: blocks, adapters and heads, from the fields of `ModelSpec`."""
