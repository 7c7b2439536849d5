"""Test cases of factorizations and linear systems, against SciPy's LAPACK and solutions in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sl
from op_references import REFERENCES
from op_running import Array, Case, GradientCase, caller, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime import dispatch
from weftgrad.runtime.device import Device
from weftgrad.runtime.records import registry

__all__ = ["FACTORIZATIONS", "factorization_cases", "factorization_gradient_cases"]

_SIZES = [(1, 1), (3, 3), (9, 9), (70, 70), (5, 12), (12, 5)]  # panels have 8 columns; 64 rows have sums of vectors
_COLUMNS = (1, 3, 40)  # right-hand sides: below a vector of columns, and above a tile of two


def _factor(matrices: Array) -> tuple[Array, Array, Array, Array]:
    """Return packed factors, pivots counted from 1, permutation, and codes (LAPACK's getrf)."""
    batch, m, n = matrices.shape
    count = min(m, n)
    packed, codes = np.zeros_like(matrices), np.zeros(batch, np.int32)
    pivots, permutation = np.zeros((batch, count), np.int32), np.tile(np.arange(m), (batch, 1))
    getrf = sl.get_lapack_funcs("getrf", dtype=np.float64)
    for b in range(batch):
        packed[b], rows, codes[b] = getrf(matrices[b])
        pivots[b] = rows + 1
        for i, row in enumerate(rows):
            permutation[b, [i, row]] = permutation[b, [row, i]]
    return packed, pivots, permutation, codes


def _permutations(pivots: Array, rows: int) -> Array:
    permutation = np.tile(np.arange(rows), (len(pivots), 1))
    for b, exchanged_rows in enumerate(pivots):
        for i, row in enumerate(exchanged_rows):
            permutation[b, [i, row - 1]] = permutation[b, [row - 1, i]]
    return permutation


def _triangular(matrices: Array, lower: bool, unit: bool) -> Array:
    triangle = np.tril(matrices, -1 if unit else 0) if lower else np.triu(matrices, 1 if unit else 0)
    return triangle + unit * np.eye(matrices.shape[-1])


def _solve_triangular(matrices: Array, right: Array, lower: bool, unit: bool) -> Array:
    return np.linalg.solve(_triangular(matrices, lower, unit), right)


def _solve_factored(matrices: Array, packed: Array, permutation: Array, right: Array, adjoint: bool) -> Array:
    return np.linalg.solve(matrices.swapaxes(-1, -2) if adjoint else matrices, right)


def _determinants(matrices: Array, packed: Array, pivots: Array) -> tuple[Array, Array, Array]:
    return np.linalg.det(matrices), *np.linalg.slogdet(matrices)


def _cholesky(matrices: Array) -> tuple[Array, Array]:
    return np.linalg.cholesky(matrices).swapaxes(-1, -2), np.zeros(len(matrices), np.int32)


def _orthogonalize(matrices: Array) -> tuple[Array, Array]:
    """Rotate pairs of rows by the smaller of the two angles that make them orthogonal, in cyclic order."""
    rows = matrices.copy()
    batch, n, _ = rows.shape
    rotation = np.tile(np.eye(n), (batch, 1, 1))
    for b, _, p, q in np.ndindex(batch, 12, n, n):
        if p < q:
            x, y = rows[b, p], rows[b, q]
            angle = 0.5 * np.arctan2(2 * (x @ y), y @ y - x @ x)
            if abs(angle) > np.pi / 4:
                angle -= np.copysign(np.pi / 2, angle)
            plane = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            rows[b, [p, q]] = plane @ rows[b, [p, q]]
            rotation[b, [p, q]] = plane @ rotation[b, [p, q]]
    return rows, rotation


def _packed_factors(matrices: Array, columns: int) -> tuple[Array, Array, Array]:
    """Return Q, and what LAPACK's geqrf returns: R above the vectors of the reflections, and their factors."""
    raw = [sl.qr(matrix, mode="raw")[0] for matrix in matrices]
    q = np.stack([sl.qr(matrix)[0] for matrix in matrices])[:, :, :columns]
    return q, np.stack([packed for packed, _ in raw]), np.stack([tau for _, tau in raw])


_REFERENCES = {
    "lu_factorize": _factor, "cholesky_factorize": _cholesky, "determinants": _determinants,
    "pivot_permutation": _permutations, "triangle_solve": _solve_triangular, "factored_solve": _solve_factored,
    "orthogonalize_rows": _orthogonalize, "qr_factorize": _packed_factors,
}  # fmt: skip
FACTORIZATIONS = tuple(_REFERENCES)
REFERENCES |= _REFERENCES


def _matrices(rng: Any, batch: int, m: int, n: int) -> Array:
    """Return random matrices whose condition numbers are small, and which need exchanges of rows."""
    matrices = rng.standard_normal((batch, m, n))
    return matrices + np.roll(np.eye(m, n), 1, axis=0) * (2 + max(m, n) ** 0.5)


def _strided(array: Array, dtype: str, device: Device, is_transposed: bool) -> Any:
    """Return a tensor of the matrices, stored by columns if `is_transposed`."""
    if not is_transposed:
        return tensor(array, dtype, device)
    return tensor(np.ascontiguousarray(array.swapaxes(1, 2)), dtype, device).transpose(1, 2)


def factorization_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return cases of each size and dtype; every other one has matrices stored by columns."""
    cases: list[Case] = []
    dtypes = ["float32"]
    if selection in ("full", "small") and has(device, "float64"):
        dtypes.append("float64")
    is_slow = selection == "small" or device.type == "interpreter"
    sizes = [(3, 3), (9, 9), (5, 12), (12, 5)] if is_slow else _SIZES
    for dtype in dtypes:
        tolerance = (1e-11, 1e-11) if dtype == "float64" else (1e-3, 1e-3)
        for m, n in sizes:
            is_square = m == n
            if not is_square and op.name not in (
                "lu_factorize",
                "pivot_permutation",
                "orthogonalize_rows",
                "qr_factorize",
            ):
                continue
            if op.name == "orthogonalize_rows" and m > 20:
                continue
            rng = np.random.default_rng(m * 100 + n)
            array = rounded(_matrices(rng, 3, m, n), dtype).astype(np.float64)
            is_transposed = len(cases) % 2 == 1
            label = f"{dtype}, {m}x{n}, {'by columns' if is_transposed else 'by rows'}"
            packed, pivots, permutation, codes = _factor(array)
            matrices = _strided(array, dtype, device, is_transposed)

            def add(
                operands: list[Any], arrays: list[Array], expected: tuple[Array, ...], kinds: tuple[str, ...],
                statics: tuple[Any, ...] = (), label: str = label, tolerance: tuple[float, float] = tolerance,
            ) -> None:  # fmt: skip
                label = f"{label}, {statics}, {operands[-1].shape}"
                cases.append(Case(label, operands, arrays, expected, kinds, statics, tolerance))

            if op.name == "lu_factorize":
                add([matrices], [array], (packed, pivots, permutation, codes), (dtype, "int32", "int64", "int32"))
            elif op.name == "qr_factorize":
                for columns in {min(m, n), m}:
                    add([matrices], [array], _packed_factors(array, columns), (dtype,) * 3, (columns,))
            elif op.name == "orthogonalize_rows":
                if m <= n:
                    add([matrices], [array], _orthogonalize(array), (dtype,) * 2)
            elif op.name == "pivot_permutation":
                add([tensor(pivots, "int32", device)], [pivots], (permutation,), ("int64",), (m,))
            elif op.name == "cholesky_factorize":
                definite = rounded(array @ array.swapaxes(1, 2) + np.eye(n), dtype).astype(np.float64)
                add(
                    [_strided(definite, dtype, device, is_transposed)],
                    [definite],
                    _cholesky(definite),
                    (dtype, "int32"),
                )
            elif op.name == "determinants":
                operands = [matrices, tensor(packed, dtype, device), tensor(pivots, "int32", device)]
                add(operands, [array, packed, pivots], _determinants(array, packed, pivots), (dtype,) * 3)
            else:
                for k in _COLUMNS:
                    right = rounded(rng.standard_normal((3, n, k)), dtype).astype(np.float64)
                    right_tensor = _strided(right, dtype, device, not is_transposed)
                    for flag in (False, True):
                        if op.name == "triangle_solve":
                            scaled = rounded(array / 3 + 2 * np.eye(n), dtype).astype(np.float64)
                            statics = (flag, (k == 3) != flag)
                            solution = _solve_triangular(scaled, right, *statics)
                            operands = [_strided(scaled, dtype, device, is_transposed), right_tensor]
                            relative = tolerance[0] * max(1, float(np.abs(solution).max()))
                            add(
                                operands,
                                [scaled, right],
                                (solution,),
                                (dtype,),
                                statics,
                                label,
                                (tolerance[0], relative),
                            )
                        else:
                            solution = _solve_factored(array, packed, permutation, right, flag)
                            factors = tensor(packed, dtype, device), tensor(permutation, "int64", device)
                            operands = [matrices, *factors, right_tensor]
                            add(operands, [array, packed, permutation, right], (solution,), (dtype,), (flag,))
    return cases


def factorization_gradient_cases(op: Op, device: Device) -> list[GradientCase]:
    """Return gradient cases: square matrices, for LU also wide and tall ones, for solutions also right-hand sides."""
    call = caller(op)
    rng = np.random.default_rng(8)

    def leaf(array: Array) -> Any:
        return tensor(array, "float64", device, True)

    def factor(x: Any) -> Any:
        return dispatch.call(registry["lu_factorize"], (x.detach(),))

    matrices = _matrices(rng, 2, 3, 3)
    if op.name == "lu_factorize":
        return [
            GradientCase(f"{m}x{n}", lambda x: call(x)[0], [leaf(_matrices(rng, 2, m, n))], ("input",))
            for m, n in ((3, 3), (2, 4), (4, 2))
        ]
    if op.name == "cholesky_factorize":
        identity = tensor(np.eye(3), "float64", device)
        return [
            GradientCase(
                "of a product", lambda x: call(x @ x.transpose(1, 2) + identity)[0], [leaf(matrices)], ("input",)
            )
        ]
    if op.name == "determinants":

        def determinant(x: Any, result: int) -> Any:
            packed, pivots, _, _ = factor(x)
            return call(x, packed, pivots)[result]

        return [
            GradientCase(label, lambda x, result=result: determinant(x, result), [leaf(matrices)], ("input",))
            for result, label in ((0, "det"), (2, "logabs"))
        ]
    if op.name in ("pivot_permutation", "orthogonalize_rows", "qr_factorize"):
        return []

    def solution(x: Any, right: Any, statics: tuple[bool, ...]) -> Any:
        if op.name == "triangle_solve":
            return call(x, right, statics=statics)
        packed, _, permutation, _ = factor(x)
        return call(x, packed, permutation, right, statics=statics)

    flags = (
        [(True, True), (True, False), (False, True), (False, False)]
        if op.name == "triangle_solve"
        else [(False,), (True,)]
    )
    return [
        GradientCase(
            f"{statics}", lambda x, right, statics=statics: solution(x, right, statics),
            [leaf(matrices), leaf(rng.standard_normal((2, 3, 2)))], ("input", "right"),
        )
        for statics in flags
    ]  # fmt: skip
