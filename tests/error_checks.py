"""A check of an error's classes and words."""

from __future__ import annotations

from typing import Any

import weftgrad as wg
from weftgrad.runtime import errors

__all__ = ["raises", "tensor"]


def raises(project: type[Exception], builtin: type[Exception], *words: str) -> Any:
    """Return a context manager that demands an error of both classes whose message contains every word."""

    class Context:
        def __enter__(self) -> None:
            return None

        def __exit__(self, _type: Any, error: Any, _: Any) -> bool:
            assert error is not None, f"nothing was raised where {project.__name__} was due"
            if not isinstance(error, errors.WeftgradError):
                return False
            assert isinstance(error, project), f"{type(error).__name__}: {error}"
            assert isinstance(error, builtin)
            missing = [w for w in words if w not in str(error)]
            assert not missing, f"{missing} not in: {error}"
            return True

    return Context()


def tensor(*shape: int, dtype: Any = wg.float32, grad: bool = False) -> Any:
    return wg.ones(*shape, dtype=dtype, device="cpu", requires_grad=grad)
