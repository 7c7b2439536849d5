"""`python -m weftgrad.bench`: the command `weftgrad bench` where no installation tells the command line of it."""

import argparse
import sys

from .command import options

made = options(argparse.ArgumentParser(prog="python -m weftgrad.bench", allow_abbrev=False))
chosen = made.parse_args()
sys.exit(chosen.run(chosen))
