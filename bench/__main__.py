"""`python -m weftgrad.bench`: the command `weftgrad bench` where no installation tells the command line of it."""

import argparse
import os
import sys

from ..runtime.errors import WeftgradError
from .command import options

made = options(argparse.ArgumentParser(prog="python -m weftgrad.bench", allow_abbrev=False))
chosen = made.parse_args()
try:
    status = chosen.run(chosen)
    sys.stdout.flush()
except BrokenPipeError:  # `... | head`
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 141
except (WeftgradError, OSError) as error:  # which say all there is to say
    print(f"weftgrad: {error}", file=sys.stderr)
    status = 2
except KeyboardInterrupt:
    status = 130
sys.exit(status)
