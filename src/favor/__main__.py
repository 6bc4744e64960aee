"""`python -m favor` is the command `favor`."""

from favor.cli import main

main()
