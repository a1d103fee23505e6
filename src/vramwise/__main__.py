"""`python -m vramwise` is the `vramwise` command."""

from vramwise.cli.main import main

main()
