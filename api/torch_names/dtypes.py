"""Dtypes of PyTorch that weftgrad has no kernels for: names to compare with, to look up, and to refuse."""

from __future__ import annotations

from ..runtime.dtypes import named_dtype

__all__ = [
    "cdouble", "cfloat", "chalf", "complex32", "complex64", "complex128", "float4_e2m1fn_x2", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "qint8", "qint32", "quint2x4", "quint4x2",
    "quint8", "uint16", "uint32", "uint64",
]  # fmt: skip

complex32 = chalf = named_dtype("complex32", "c", 4)
complex64 = cfloat = named_dtype("complex64", "c", 8)
complex128 = cdouble = named_dtype("complex128", "c", 16)
uint16 = named_dtype("uint16", "u", 2)
uint32 = named_dtype("uint32", "u", 4)
uint64 = named_dtype("uint64", "u", 8)
float8_e4m3fn = named_dtype("float8_e4m3fn", "f", 1)
float8_e4m3fnuz = named_dtype("float8_e4m3fnuz", "f", 1)
float8_e5m2 = named_dtype("float8_e5m2", "f", 1)
float8_e5m2fnuz = named_dtype("float8_e5m2fnuz", "f", 1)
float8_e8m0fnu = named_dtype("float8_e8m0fnu", "f", 1)
float4_e2m1fn_x2 = named_dtype("float4_e2m1fn_x2", "f", 1)
qint8 = named_dtype("qint8", "i", 1)
qint32 = named_dtype("qint32", "i", 4)
quint8 = named_dtype("quint8", "u", 1)
quint4x2 = named_dtype("quint4x2", "u", 1)
quint2x4 = named_dtype("quint2x4", "u", 1)
