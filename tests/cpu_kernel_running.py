"""Programs in a process of their own, for tests of kernels of `cpu`."""

from __future__ import annotations

import os
import subprocess
import sys

from weftgrad.runtime.backends.protocol import Instance, Slot

__all__ = ["TEXT", "instance", "run"]

TEXT = """typedef struct { long n; } NAME(Geometry);
typedef struct { long offset[1]; } NAME(Dynamic);
kernel void NAME(count)(global S0 *p0, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    WG_AT(S0, p0, dyn.offset[0])[get_global_id(0)] = geo.n + %d;
}
"""


def instance(number: int, text: str = TEXT) -> Instance:
    return Instance(f"count{number}", text % number, "count", "long", 1, (Slot("int64", "raw"),))


def run(code: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
