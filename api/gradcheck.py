"""Derivatives checked against differences: `gradcheck` for the first order, `gradgradcheck` for the second.

A vector-Jacobian product (what backward gives) is compared with a Jacobian-vector product by central differences:
`u . (J v)` by either road, for random u and v. That costs two calls of the function and one backward however large the
operands are, where a Jacobian costs as many as there are elements; that reverse mode costs no more than a small
multiple of the function is Baur and Strassen, "The complexity of partial derivatives", 1983. `fast_mode=False`
compares whole Jacobians, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _hosting
from .autograd import enable_grad, grad, no_grad
from .runtime import dtypes
from .runtime.errors import ArgumentError, GradientError
from .runtime.tensor import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Array = np.ndarray[Any, Any]


class GradcheckError(GradientError, AssertionError):
    """A gradient is not what differences say. The message names the op, the operand and the entry that is most off."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = True,
    check_undefined_grad: bool = True,
    **_: Any,
) -> bool:
    """Whether backward through `func` gives what central differences of step `eps` give.

    func: takes `inputs`, returns a tensor or several. inputs: those that are float64 tensors with `requires_grad` are
    checked; others are passed on. Tolerances are as for `allclose`, of Jacobian entries. fast_mode (the default here,
    not in PyTorch): one random projection an input and output instead of whole Jacobians. nondet_tol: how much two
    backward passes may differ. check_undefined_grad: also check that an output's gradient may be missing.

    Raises `GradcheckError` (or returns False, with `raise_exception=False`) where they differ, and `ArgumentError` for
    inputs that cannot be checked: none requires grad, or one is not float64.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = _Check(func, given, eps, atol, rtol, nondet_tol, fast_mode)
    try:
        checked.run(check_undefined_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = True,
    **_: Any,
) -> bool:
    """`gradcheck` of the gradients themselves: second derivatives, with respect to inputs and incoming gradients.

    grad_outputs: the incoming gradients, one for each differentiable output; random ones by default.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    outputs = _outputs(func(*given))
    if grad_outputs is None:
        generator = np.random.default_rng(1)
        seeds = [_tensor(generator.standard_normal(o.meta.shape), o) for o in outputs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    for seed in seeds:
        seed.requires_grad_(True)  # type: ignore[attr-defined]
    wanted = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.needs]

    def first_order(*arguments: Any) -> Any:
        own = list(arguments[: len(given)])
        found = grad(
            _outputs(func(*own)),
            [own[i] for i in wanted],
            arguments[len(given) :],
            create_graph=True,
            allow_unused=True,
        )
        return tuple(f for f in found if f is not None and f.needs)

    first_order.__name__ = f"the gradient of {_name(func)}"
    with enable_grad():
        constant = not first_order(*given, *seeds)
    if constant:  # nothing depends on anything: there is no second derivative
        return True
    return gradcheck(
        first_order, [*given, *seeds], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, fast_mode=fast_mode, check_undefined_grad=False,
    )  # fmt: skip


def _name(func: Callable[..., Any]) -> str:
    owner = getattr(func, "__self__", None)
    name = getattr(func, "__name__", type(func).__name__)
    return f"{owner.__name__}.{name}" if isinstance(owner, type) else name


def _outputs(found: Any) -> list[Tensor]:
    """The differentiable ones of what a function returned."""
    every = [found] if isinstance(found, Tensor) else list(found)
    return [t for t in every if isinstance(t, Tensor) and t.needs]


def _tensor(values: Array, like: Tensor) -> Tensor:
    return _hosting.from_host(np.asarray(values), dtypes.float64, like.device)


def _host(tensor: Tensor) -> Array:
    return np.array(_hosting.host_array(tensor), np.float64)


class _Check:
    """One check: the function, its inputs, and how exact it has to be."""

    def __init__(
        self,
        func: Callable[..., Any],
        inputs: list[Any],
        eps: float,
        atol: float,
        rtol: float,
        nondet_tol: float,
        fast: bool,
    ):
        self.func, self.inputs, self.eps, self.atol, self.rtol = func, inputs, eps, atol, rtol
        self.nondet_tol, self.fast = nondet_tol, fast
        self.generator = np.random.default_rng(0)
        self.wanted = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.needs]
        if not self.wanted:
            raise ArgumentError("gradcheck: none of the inputs requires grad; make them with requires_grad=True")
        for i in self.wanted:
            x = inputs[i]
            if x.dtype is not dtypes.float64:
                raise ArgumentError(
                    f"gradcheck: input {i} is {x.dtype.name}; differences need float64: convert it with .double()"
                )
            if any(s == 0 and n > 1 for s, n in zip(x.meta.strides, x.meta.shape, strict=True)):
                raise ArgumentError(f"gradcheck: several indices of input {i} are the same element; clone() it first")

    def run(self, check_undefined: bool) -> None:
        with enable_grad():
            outputs = _outputs(self.func(*self.inputs))
        if not outputs:
            raise ArgumentError("gradcheck: no output of the function requires grad")
        for position, output in enumerate(outputs):
            if output.dtype is not dtypes.float64:
                raise ArgumentError(f"gradcheck: output {position} is {output.dtype.name}, not float64")
            if self.fast:
                self._projected(outputs, position)
            else:
                self._jacobians(outputs, position)
        if check_undefined and len(outputs) > 1:
            # Each output was differentiated without the others above; here with all of them at once.
            seeds = [_tensor(np.ones(o.meta.shape), o) for o in outputs]
            together = self._backward(outputs, seeds)
            apart = [self._backward([o], [s]) for o, s in zip(outputs, seeds, strict=True)]
            for k, i in enumerate(self.wanted):
                total = np.sum([a[k] for a in apart], axis=0)
                self._agree(total, together[k], 1e-12, f"input {i}: gradients of all outputs together and one by one")

    # by projections

    def _projected(self, outputs: list[Tensor], position: int) -> None:
        output = outputs[position]
        u = self._direction(output.meta.shape)
        seed = _tensor(u, output)
        backward = self._backward([output], [seed])
        again = self._backward([output], [seed])
        for k, i in enumerate(self.wanted):
            self._agree(backward[k], again[k], self.nondet_tol, f"input {i}: two backward passes")
            v = self._direction(self.inputs[i].meta.shape)
            change = self._difference(i, v)[position]
            numerical, analytical = float((u * change).sum()), float((backward[k] * v).sum())
            # As torch: the tolerance of an entry, times how much of the entries the projection adds up.
            allowed = self.atol * float(np.abs(u).sum() * np.abs(v).sum()) ** 0.5 + self.rtol * abs(numerical)
            if not abs(numerical - analytical) <= allowed:
                self._entry_by_entry(outputs, position, i, numerical, analytical)

    def _direction(self, shape: tuple[int, ...]) -> Array:
        """Entries of like size and either sign: no entry of a Jacobian is multiplied by almost nothing."""
        return self.generator.choice([-1.0, 1.0], shape) * self.generator.uniform(0.5, 1.5, shape)

    def _entry_by_entry(
        self, outputs: list[Tensor], position: int, i: int, numerical: float, analytical: float
    ) -> None:
        if self.inputs[i].meta.numel * outputs[position].meta.numel <= 4096:
            self._jacobian(outputs, position, i)
        raise GradcheckError(
            f"{self._where(outputs, position, i)}: a random projection of the Jacobian is {numerical:.10g} by "
            f"differences and {analytical:.10g} by backward"
        )

    # by Jacobians

    def _jacobians(self, outputs: list[Tensor], position: int) -> None:
        for i in self.wanted:
            self._jacobian(outputs, position, i)

    def _jacobian(self, outputs: list[Tensor], position: int, i: int) -> None:
        """Compare d output[position] / d input[i], a matrix of outputs by inputs."""
        output, operand = outputs[position], self.inputs[i]
        rows, columns = output.meta.numel, operand.meta.numel
        numerical, analytical = np.zeros((rows, columns)), np.zeros((rows, columns))
        for c in range(columns):
            step = np.zeros(columns)
            step[c] = 1
            numerical[:, c] = self._difference(i, step.reshape(operand.meta.shape))[position].reshape(-1)
        k = self.wanted.index(i)
        for r in range(rows):
            unit = np.zeros(rows)
            unit[r] = 1
            seed = _tensor(unit.reshape(output.meta.shape), output)
            analytical[r] = self._backward([output], [seed])[k].reshape(-1)
        excess = np.abs(numerical - analytical) - (self.atol + self.rtol * np.abs(numerical))
        excess = np.where(np.isnan(excess), np.inf, excess)
        if rows and columns and excess.max() > 0:
            row, column = np.unravel_index(int(excess.argmax()), excess.shape)
            at_out = _index(int(row), output.meta.shape)
            at_in = _index(int(column), operand.meta.shape)
            raise GradcheckError(
                f"{self._where(outputs, position, i)}: the Jacobians differ, most at output{at_out}, input{at_in} = "
                f"{_host(operand)[at_in].item():.6g}: {numerical[row, column]:.10g} by differences, "
                f"{analytical[row, column]:.10g} by backward; "
                f"{int((excess > 0).sum())} of {rows * columns} entries differ"
            )

    # the parts of either

    def _backward(self, outputs: list[Tensor], seeds: list[Tensor]) -> list[Array]:
        wanted = [self.inputs[i] for i in self.wanted]
        found = grad(outputs, wanted, seeds, retain_graph=True, allow_unused=True)
        shapes = [w.meta.shape for w in wanted]
        for i, f, shape in zip(self.wanted, found, shapes, strict=True):
            if f is not None and (f.meta.shape != shape or f.dtype is not dtypes.float64):
                raise GradcheckError(
                    f"{_name(self.func)}: the gradient of input {i} is {f.dtype.name}{list(f.meta.shape)}, "
                    f"the input float64{list(shape)}"
                )
        return [np.zeros(s) if f is None else _host(f) for f, s in zip(found, shapes, strict=True)]

    def _difference(self, i: int, direction: Array) -> list[Array]:
        """The change of every output along `direction` of input i, by central differences."""
        operand = self.inputs[i]
        base = _host(operand)
        values = []
        with enable_grad():  # so that the outputs counted are the same ones
            for sign in (1, -1):
                moved = list(self.inputs)
                moved[i] = _tensor(base + sign * self.eps * direction, operand).requires_grad_(True)  # type: ignore[attr-defined]
                found = _outputs(self.func(*moved))
                with no_grad():
                    values.append([_host(f) for f in found])
        return [(a - b) / (2 * self.eps) for a, b in zip(*values, strict=True)]

    def _agree(self, a: Array, b: Array, tolerance: float, what: str) -> None:
        off = np.abs(a - b)
        if off.size and not float(np.nan_to_num(off).max()) <= tolerance * max(
            1.0, float(np.nan_to_num(np.abs(a)).max())
        ):
            raise GradcheckError(f"{_name(self.func)}: {what} differ by {float(off.max()):.3g}")

    def _where(self, outputs: list[Tensor], position: int, i: int) -> str:
        node = outputs[position].node
        last = f" (its last op is {node.name})" if node is not None else ""
        shape = list(self.inputs[i].meta.shape)
        return f"gradcheck of {_name(self.func)}{last}: output {position} by input {i} of shape {shape}"


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.unravel_index(flat, shape)) if shape else ()
