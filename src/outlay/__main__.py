"""`python -m outlay`."""

from outlay.cli import main

main()
