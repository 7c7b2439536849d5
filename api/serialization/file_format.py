"""The header and the table of a file, whose layout the package's docstring shows."""

from __future__ import annotations

import struct

__all__ = ["HEADER", "MAGIC", "STORAGE_ALIGNMENT", "TABLE_ENTRY"]

MAGIC = b"weftgrad"
HEADER = struct.Struct("<8sQQQQ")
TABLE_ENTRY = struct.Struct("<QQQ")
STORAGE_ALIGNMENT = 64  # bytes; the saved part of a storage begins at a multiple of this
