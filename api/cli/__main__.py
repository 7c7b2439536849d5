"""`python -m weftgrad.cli`."""

import sys

from . import main

sys.exit(main())
