"""`python -m enteron`."""

from enteron.cli import main

main()
