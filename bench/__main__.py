"""`python -m weftgrad.bench`: the command `weftgrad bench` where no installation tells the command line of it."""

import argparse
import sys

from ..runtime.errors import WeftgradError
from .command import options

made = options(argparse.ArgumentParser(prog="python -m weftgrad.bench", allow_abbrev=False))
chosen = made.parse_args()
try:
    sys.exit(chosen.run(chosen))
except (WeftgradError, OSError) as error:  # which say all there is to say
    print(f"weftgrad: {error}", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
