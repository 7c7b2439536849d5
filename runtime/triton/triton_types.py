"""Protocols of those members of Triton's classes that the runtime uses. Triton is optional: type checkers see these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from ..dtypes import Array

__all__ = ["CompiledKernel", "Constant", "Handle", "TritonModule", "TritonTensor", "TritonType"]

Constant: TypeAlias = str | int | float | None
"""The value of a kernel's constexpr parameter; the name of a dtype stands for the dtype (see `signature.resolve`)."""


class TritonType(Protocol):
    """A type of triton.language. Only block types have a `shape`, and only types of numbers a `primitive_bitwidth`."""

    name: str
    shape: tuple[int, ...]
    primitive_bitwidth: int

    @property
    def scalar(self) -> TritonType: ...
    def is_block(self) -> bool: ...
    def is_floating(self) -> bool: ...
    def is_ptr(self) -> bool: ...


class Handle(Protocol):
    """A `TensorHandle` of Triton's interpreter: a NumPy array, the type of its elements, and attributes."""

    data: Array
    dtype: TritonType
    attr: dict[str, object]

    def get_element_ty(self) -> TritonType: ...


class TritonTensor(Protocol):
    """A tensor of triton.language: `type` is that of the whole block, `dtype` that of an element."""

    handle: Handle
    type: TritonType
    dtype: TritonType


class _Metadata(Protocol):
    """How a kernel is launched: its name, warps in a block, blocks in a cluster, and bytes of shared memory."""

    name: str
    num_warps: int
    num_ctas: int
    shared: int


class CompiledKernel(Protocol):
    """The result of Triton's compiler. `asm` has the text or machine code of every stage, such as `ttir` and `ptx`."""

    metadata: _Metadata
    asm: Mapping[str, str | bytes]


class TritonModule(Protocol):
    """The module `triton`."""

    language: object
    compile: Callable[..., CompiledKernel]
