"""The command line: `main` wires, one file a command."""
