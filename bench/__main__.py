"""`python -m weftgrad.bench`: run the command `weftgrad bench` from a checkout whose entry points are not installed."""

import argparse
import os
import sys

from ..runtime.errors import WeftgradError
from .command import options

parser = options(argparse.ArgumentParser(prog="python -m weftgrad.bench", allow_abbrev=False))
args = parser.parse_args()
try:
    status = args.run(args)
    sys.stdout.flush()
except BrokenPipeError:  # `... | head`
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = 141
except (WeftgradError, OSError) as error:  # the message is enough: no traceback
    print(f"weftgrad: {error}", file=sys.stderr)
    status = 2
except KeyboardInterrupt:
    status = 130
sys.exit(status)
