"""`python -m heed` is the `heed` command."""

from ._command import main

main()
