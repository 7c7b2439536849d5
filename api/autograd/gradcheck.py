"""Check derivatives against finite differences: `gradcheck` for the first order, `gradgradcheck` for the second.

For random vectors u and v and the Jacobian J, the number `u . (J v)` is computed twice: from the vector-Jacobian
product `u J` that backward computes, and from the Jacobian-vector product `J v` by central differences. This costs two
calls of the function and one backward, however large the operands are; a whole Jacobian costs as many calls as there
are elements. (Reverse mode costs a small constant multiple of the function: Baur and Strassen, "The complexity of
partial derivatives", 1983.)
`fast_mode=False` compares whole Jacobians, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from .grad_mode import enable_grad, no_grad
from .gradients import grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

_Function: TypeAlias = Callable[..., Tensor | Iterable[object]]
"""A function to check: its results are a tensor, or several values with tensors among them."""


class GradcheckError(GradientError, AssertionError):
    """A gradient disagrees with finite differences. The message names the op, the operand and the worst entry.

    Example:
        >>> from weftgrad.autograd import GradcheckError
        >>> issubclass(GradcheckError, AssertionError)
        True
    """


def gradcheck(
    func: _Function,
    inputs: Tensor | Sequence[object],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = True,
    check_undefined_grad: bool = True,
    **_: object,
) -> bool:
    """Return True if backward through `func` agrees with central differences.

    Args:
        func: Function of `inputs` that returns a tensor or several. Float64 outputs are checked.
        inputs: Arguments of `func`. Float64 tensors with `requires_grad` are checked; other arguments are passed on.
        eps: Step of the differences.
        atol: Absolute tolerance of Jacobian entries, as for `allclose`.
        rtol: Relative tolerance of Jacobian entries.
        raise_exception: Raise where the derivatives differ; otherwise return False.
        nondet_tol: Largest allowed difference between two backward passes.
        fast_mode: Compare one random projection for each pair of input and output (the default here, unlike in
            PyTorch), not whole Jacobians.
        check_undefined_grad: Where the function has several outputs, also check that gradients of all outputs together
            are the sum of the gradients of each output, whose other outputs get none.
        **_: Further arguments of PyTorch's function; ignored.

    Returns:
        True; False if the derivatives differ and `raise_exception` is False.

    Raises:
        GradcheckError: The derivatives differ, and `raise_exception` is set.
        ArgumentError: No input requires grad, or one that does is not float64.

    Example:
        >>> x = wg.tensor([1.0, 2.0], dtype=wg.float64, requires_grad=True)
        >>> wg.autograd.gradcheck(lambda x: x.sin(), [x])
        True
    """
    input_list: list[object] = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    check = _Check(func, input_list, eps, atol, rtol, nondet_tol, fast_mode)
    try:
        check.run(check_undefined_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: _Function,
    inputs: Tensor | Sequence[object],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = True,
    **_: object,
) -> bool:
    """Check second derivatives: run `gradcheck` on the function that computes the gradients of `func`.

    Args:
        func: Function of `inputs` that returns a tensor or several.
        inputs: Arguments of `func`.
        grad_outputs: Gradients of the differentiable outputs, one each; random ones by default.
        eps: Step of the differences.
        atol: Absolute tolerance of Jacobian entries.
        rtol: Relative tolerance of Jacobian entries.
        raise_exception: Raise where the derivatives differ; otherwise return False.
        nondet_tol: Largest allowed difference between two backward passes.
        fast_mode: Compare one random projection for each pair of input and output, not whole Jacobians.
        **_: Further arguments of PyTorch's function; ignored.

    Returns:
        True; False if the derivatives differ and `raise_exception` is False. A gradient that is constant counts as
        correct.

    Raises:
        GradcheckError: The derivatives differ, and `raise_exception` is set.
        ArgumentError: An input that requires grad is not float64.

    Example:
        >>> x = wg.tensor([1.0, 2.0], dtype=wg.float64, requires_grad=True)
        >>> wg.autograd.gradgradcheck(lambda x: x.sin(), [x])
        True
    """
    input_list = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    outputs = _differentiable_outputs(func(*input_list))
    if grad_outputs is None:
        generator = np.random.default_rng(1)
        seeds = [_to_tensor(generator.standard_normal(o.meta.shape), o) for o in outputs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    for seed in seeds:
        seed.requires_grad_(True)

    def first_order(*arguments: object) -> tuple[Tensor, ...]:
        call_inputs, call_seeds = arguments[: len(input_list)], arguments[len(input_list) :]
        gradients = grad(
            _differentiable_outputs(func(*call_inputs)), list(_inputs_with_grad(call_inputs).values()),
            [seed for seed in call_seeds if isinstance(seed, Tensor)], create_graph=True, allow_unused=True,
        )  # fmt: skip
        return tuple(g for g in gradients if g is not None and g.needs_grad)

    first_order.__name__ = f"the gradient of {_function_name(func)}"
    with enable_grad():
        is_constant = not first_order(*input_list, *seeds)
    if is_constant:  # there is no second derivative
        return True
    return gradcheck(
        first_order, [*input_list, *seeds], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, fast_mode=fast_mode, check_undefined_grad=False,
    )  # fmt: skip


def _function_name(func: _Function) -> str:
    owner = getattr(func, "__self__", None)
    name = getattr(func, "__name__", type(func).__name__)
    return f"{owner.__name__}.{name}" if isinstance(owner, type) else str(name)


def _inputs_with_grad(arguments: Sequence[object]) -> dict[int, Tensor]:
    """Return the arguments that require grad, by position."""
    return {i: x for i, x in enumerate(arguments) if isinstance(x, Tensor) and x.needs_grad}


def _differentiable_outputs(returned: Tensor | Iterable[object]) -> list[Tensor]:
    """Return the differentiable tensors among a function's results."""
    results: Iterable[object] = [returned] if isinstance(returned, Tensor) else returned
    return [t for t in results if isinstance(t, Tensor) and t.needs_grad]


def _to_tensor(values: Array, like: Tensor) -> Tensor:
    """Return a float64 tensor with these values on the device of `like`."""
    return host_data.from_host(np.asarray(values), dtypes.float64, like.device)


def _to_numpy(tensor: Tensor) -> Array:
    return np.array(host_data.host_array(tensor), np.float64)


class _Check:
    """One run of `gradcheck`: the function, its inputs and the tolerances.

    `operands` has the checked inputs by their position in `inputs`. In the methods, `i` is such a position, `k` an
    index in the list of checked inputs, and `position` the index of an output.
    """

    def __init__(
        self,
        func: _Function,
        inputs: list[object],
        eps: float,
        atol: float,
        rtol: float,
        nondet_tol: float,
        fast: bool,
    ):
        self.func, self.inputs, self.eps, self.atol, self.rtol = func, inputs, eps, atol, rtol
        self.nondet_tol, self.fast = nondet_tol, fast
        self.generator = np.random.default_rng(0)
        self.operands = _inputs_with_grad(inputs)
        if not self.operands:
            raise ArgumentError("gradcheck: none of the inputs requires grad; make them with requires_grad=True")
        for i, x in self.operands.items():
            if x.dtype is not dtypes.float64:
                raise ArgumentError(
                    f"gradcheck: input {i} is {x.dtype.name}; differences need float64: convert it with .double()"
                )
            if any(s == 0 and n > 1 for s, n in zip(x.meta.strides, x.meta.shape, strict=True)):
                raise ArgumentError(f"gradcheck: several indices of input {i} are the same element; clone() it first")

    def run(self, check_undefined: bool) -> None:
        """Check all outputs. Raise `GradcheckError` at the first difference."""
        with enable_grad():
            outputs = _differentiable_outputs(self.func(*self.inputs))
        if not outputs:
            raise ArgumentError("gradcheck: no output of the function requires grad")
        for position, output in enumerate(outputs):
            if output.dtype is not dtypes.float64:
                raise ArgumentError(f"gradcheck: output {position} is {output.dtype.name}, not float64")
            if self.fast:
                self._check_projection(outputs, position)
            else:
                self._check_jacobians(outputs, position)
        if check_undefined and len(outputs) > 1:
            # Above, each output was differentiated alone; here all of them together.
            seeds = [_to_tensor(np.ones(o.meta.shape), o) for o in outputs]
            joint_grads = self._backward(outputs, seeds)
            separate_grads = [self._backward([o], [s]) for o, s in zip(outputs, seeds, strict=True)]
            for k, i in enumerate(self.operands):
                total = np.sum([a[k] for a in separate_grads], axis=0)
                self._check_agreement(
                    total, joint_grads[k], 1e-12, f"input {i}: gradients of all outputs together and one by one"
                )

    # Random projections

    def _check_projection(self, outputs: list[Tensor], position: int) -> None:
        """Compare `u . (J v)` by backward and by differences, for random u and v and each checked input."""
        output = outputs[position]
        u = self._random_direction(output.meta.shape)
        seed = _to_tensor(u, output)
        backward = self._backward([output], [seed])
        repeated = self._backward([output], [seed])
        for k, (i, operand) in enumerate(self.operands.items()):
            self._check_agreement(backward[k], repeated[k], self.nondet_tol, f"input {i}: two backward passes")
            v = self._random_direction(operand.meta.shape)
            output_change = self._directional_derivatives(i, v)[position]
            numerical, analytical = float((u * output_change).sum()), float((backward[k] * v).sum())
            # As in PyTorch: the tolerance of one entry, scaled by how many entries the projection adds up.
            tolerance = self.atol * float(np.abs(u).sum() * np.abs(v).sum()) ** 0.5 + self.rtol * abs(numerical)
            if not abs(numerical - analytical) <= tolerance:
                self._report_mismatch(outputs, position, i, numerical, analytical)

    def _random_direction(self, shape: tuple[int, ...]) -> Array:
        """Return a random vector with entries of magnitude 0.5 to 1.5.

        No Jacobian entry gets a weight near 0.
        """
        return self.generator.choice([-1.0, 1.0], shape) * self.generator.uniform(0.5, 1.5, shape)

    def _report_mismatch(
        self, outputs: list[Tensor], position: int, i: int, numerical: float, analytical: float
    ) -> None:
        """Raise `GradcheckError`. It names the worst entry of the Jacobian, unless the Jacobian is large."""
        if self.operands[i].meta.numel * outputs[position].meta.numel <= 4096:
            self._check_jacobian(outputs, position, i)
        raise GradcheckError(
            f"{self._describe(outputs, position, i)}: a random projection of the Jacobian is {numerical:.10g} by "
            f"differences and {analytical:.10g} by backward"
        )

    # Whole Jacobians

    def _check_jacobians(self, outputs: list[Tensor], position: int) -> None:
        for i in self.operands:
            self._check_jacobian(outputs, position, i)

    def _check_jacobian(self, outputs: list[Tensor], position: int, i: int) -> None:
        """Compare d output[position] / d input[i], a matrix of outputs by inputs."""
        output, operand = outputs[position], self.operands[i]
        rows, columns = output.meta.numel, operand.meta.numel
        numerical, analytical = np.zeros((rows, columns)), np.zeros((rows, columns))
        for c in range(columns):
            step = np.zeros(columns)
            step[c] = 1
            numerical[:, c] = self._directional_derivatives(i, step.reshape(operand.meta.shape))[position].reshape(-1)
        k = list(self.operands).index(i)
        for r in range(rows):
            unit = np.zeros(rows)
            unit[r] = 1
            seed = _to_tensor(unit.reshape(output.meta.shape), output)
            analytical[r] = self._backward([output], [seed])[k].reshape(-1)
        excess = np.abs(numerical - analytical) - (self.atol + self.rtol * np.abs(numerical))
        excess = np.where(np.isnan(excess), np.inf, excess)
        if rows and columns and excess.max() > 0:
            row, column = np.unravel_index(int(excess.argmax()), excess.shape)
            output_index = _unravel(int(row), output.meta.shape)
            input_index = _unravel(int(column), operand.meta.shape)
            raise GradcheckError(
                f"{self._describe(outputs, position, i)}: the Jacobians differ, most at output{output_index}, "
                f"input{input_index} = "
                f"{_to_numpy(operand)[input_index].item():.6g}: {numerical[row, column]:.10g} by differences, "
                f"{analytical[row, column]:.10g} by backward; "
                f"{int((excess > 0).sum())} of {rows * columns} entries differ"
            )

    # Derivatives by backward and by differences

    def _backward(self, outputs: list[Tensor], seeds: list[Tensor]) -> list[Array]:
        """Return the gradients of all checked inputs by backward; zeros for an input that the outputs do not use."""
        grad_inputs = list(self.operands.values())
        gradients = grad(outputs, grad_inputs, seeds, retain_graph=True, allow_unused=True)
        shapes = [x.meta.shape for x in grad_inputs]
        for i, g, shape in zip(self.operands, gradients, shapes, strict=True):
            if g is not None and (g.meta.shape != shape or g.dtype is not dtypes.float64):
                raise GradcheckError(
                    f"{_function_name(self.func)}: the gradient of input {i} is {g.dtype.name}{list(g.meta.shape)}, "
                    f"the input float64{list(shape)}"
                )
        return [np.zeros(s) if g is None else _to_numpy(g) for g, s in zip(gradients, shapes, strict=True)]

    def _directional_derivatives(self, i: int, direction: Array) -> list[Array]:
        """Return the directional derivative of every output along `direction` of input i, by central differences."""
        operand = self.operands[i]
        base = _to_numpy(operand)
        values = []
        with enable_grad():  # so that the same outputs count as differentiable
            for sign in (1, -1):
                shifted = list(self.inputs)
                shifted[i] = _to_tensor(base + sign * self.eps * direction, operand).requires_grad_(True)
                outputs = _differentiable_outputs(self.func(*shifted))
                with no_grad():
                    values.append([_to_numpy(f) for f in outputs])
        return [(a - b) / (2 * self.eps) for a, b in zip(*values, strict=True)]

    def _check_agreement(self, a: Array, b: Array, tolerance: float, description: str) -> None:
        """Raise `GradcheckError` if `a` and `b` differ by more than the tolerance, relative to the largest entry."""
        error = np.abs(a - b)
        if error.size and not float(np.nan_to_num(error).max()) <= tolerance * max(
            1.0, float(np.nan_to_num(np.abs(a)).max())
        ):
            raise GradcheckError(f"{_function_name(self.func)}: {description} differ by {float(error.max()):.3g}")

    def _describe(self, outputs: list[Tensor], position: int, i: int) -> str:
        node = outputs[position].node
        last = f" (its last op is {node.name})" if node is not None else ""
        shape = list(self.operands[i].meta.shape)
        return f"gradcheck of {_function_name(self.func)}{last}: output {position} by input {i} of shape {shape}"


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.unravel_index(flat, shape)) if shape else ()
