"""The expression language of specs: parser, types, derivatives, printers.

    text --parse--> Expr --canonical / gradient--> Expr --emit_opencl / emit_triton / emit_numpy--> text

In between, `row_stages` cuts the expression of a row-wise op into stages, for OpenCL and Triton.

Everything here works on immutable, shared nodes (`nodes.py`). The functions of the language are data
(`../functions.yaml`, read by `vocabulary.py`).
"""

from .canonical import canonical
from .derive import MAX_PRODUCT_DERIVATIVES, gradient, has_product
from .emit import Block, Dialect, Piece, emit, to_text
from .emit_numpy import emit_numpy
from .emit_opencl import OPENCL_ROW, OPENCL_SCALAR, OPENCL_VECTOR, OpenCL, emit_opencl
from .emit_triton import emit_triton
from .nodes import Expr, ExprError, Operand, Scope, Type, const, free_names, size, topological, variable
from .parse import parse
from .rows import Let, Reduction, RowProgram, Stage, row_stages
from .vocabulary import Function, call, functions, power, rebuild, substitute

__all__ = [
    "MAX_PRODUCT_DERIVATIVES",
    "OPENCL_ROW",
    "OPENCL_SCALAR",
    "OPENCL_VECTOR",
    "Block",
    "Dialect",
    "Expr",
    "ExprError",
    "Function",
    "Let",
    "OpenCL",
    "Operand",
    "Piece",
    "Reduction",
    "RowProgram",
    "Scope",
    "Stage",
    "Type",
    "call",
    "canonical",
    "const",
    "emit",
    "emit_numpy",
    "emit_opencl",
    "emit_triton",
    "free_names",
    "functions",
    "gradient",
    "has_product",
    "parse",
    "power",
    "rebuild",
    "row_stages",
    "size",
    "substitute",
    "to_text",
    "topological",
    "variable",
]
