"""Types of Triton's members that are used here. Triton is optional, so type checkers do not read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from ..dtypes import Array

__all__ = ["CompiledKernel", "Constant", "Handle", "TritonModule", "TritonTensor", "TritonType"]

Constant: TypeAlias = str | int | float | None
"""The value of a kernel's constexpr parameter; the name of a dtype stands for the dtype (see `signature.resolve`)."""


class TritonType(Protocol):
    """A type of triton.language. shape: of blocks only. primitive_bitwidth: of numbers only."""

    name: str
    shape: tuple[int, ...]
    primitive_bitwidth: int

    @property
    def scalar(self) -> TritonType: ...
    def is_block(self) -> bool: ...
    def is_floating(self) -> bool: ...
    def is_ptr(self) -> bool: ...


class Handle(Protocol):
    """A `TensorHandle` of Triton's interpreter: an array with the type of its elements, and attributes."""

    data: Array
    dtype: TritonType
    attr: dict[str, object]

    def get_element_ty(self) -> TritonType: ...


class TritonTensor(Protocol):
    """A tensor of triton.language. type: of the whole tensor. dtype: of an element."""

    handle: Handle
    type: TritonType
    dtype: TritonType


class _Metadata(Protocol):
    name: str
    num_warps: int
    num_ctas: int
    shared: int


class CompiledKernel(Protocol):
    """The result of Triton's compiler. asm: the text or machine code of every stage."""

    metadata: _Metadata
    asm: Mapping[str, str | bytes]


class TritonModule(Protocol):
    """The module `triton`."""

    language: object
    compile: Callable[..., CompiledKernel]
