"""Compute kernels on the fake GPU (`cuda_standin`) by Triton's interpreter."""

from __future__ import annotations

import itertools
from typing import Any

from cuda_standin import Standin
from cuda_standin_objects import (
    Launch,
    image_of,
)

__all__ = ["Interpreting"]


class Interpreting:
    """A compiler and a GPU at once: launches run in Triton's interpreter.

    Use as `monkeypatch.setattr(compile, "binary", interpreting.binary)` and `standin.run_kernel = interpreting.run`.
    A kernel gets only the parameter bytes that arrived at the launch.
    """

    def __init__(self, standin: Standin):
        self.standin = standin
        self.known: dict[bytes, tuple[Any, Any]] = {}
        self._serials = itertools.count()  # unique image numbers, since several threads build kernels

    def binary(self, step: Any, aligned: bool, target: Any) -> Any:
        from weftgrad.runtime.triton.compile import Binary
        from weftgrad.runtime.triton.signature import signature

        kernel_signature = signature(step, aligned)
        image = image_of(kernel_signature.entry, kernel_signature.codes + "QQ", next(self._serials))
        self.known[image] = (step, kernel_signature)
        return Binary(kernel_signature.entry, image, 128, 0)

    def run(self, launch: Launch) -> None:
        from weftgrad.runtime.triton import interpret, source

        step, kernel_signature = self.known[launch.image]
        values = iter(launch.values(kernel_signature.codes + "QQ"))
        arguments: list[Any] = []
        for name, kind in kernel_signature.types.items():
            if isinstance(kind, tuple):
                arguments.append(tuple(next(values) for _ in kind))
            elif kind.startswith("*"):
                arguments.append(self._region(name, next(values)))
            elif kind != "constexpr":
                arguments.append(next(values))
        constants = {k: _resolve_constant(v) for k, v in kernel_signature.constants.items()}
        function = source.functions(source.module_text(step.instance))[kernel_signature.entry]
        owned = self.standin.allocations.values() if step.reaches else ()
        interpret.launch(
            function,
            launch.grid,
            kernel_signature.types,
            arguments,
            constants=constants,
            divisible=kernel_signature.divisible,
            reachable=[interpret.Region("", a.address, a.address, a.address + a.nbytes) for a in owned],
            name=step.instance.name,
        )

    def _region(self, name: str, address: int) -> Any:
        from weftgrad.runtime.triton.interpret import Region

        owner = self.standin._find_allocation(address, 1)
        assert owner is not None, f"{name} points to memory that nobody owns"
        return Region(name, address, owner.address, owner.address + owner.nbytes)


def _resolve_constant(value: Any) -> Any:
    import triton.language as tl

    from weftgrad.runtime.triton.signature import resolve

    return resolve({"value": value}, tl)["value"]
