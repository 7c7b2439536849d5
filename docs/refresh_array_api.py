"""Write docs/array-api.md: which functions of the array API standard exist, read from `weftgrad.array_api`.

    python docs/refresh_array_api.py

The standard's names and signatures are in docs/_data/array_api_2024_12.txt. A test compares the page with what this
script writes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import weftgrad as wg

PAGE = Path(__file__).with_name("array-api.md")
DATA = Path(__file__).with_name("_data") / "array_api_2024_12.txt"

MISSING = object()

HEAD = """# The Python array API standard

`weftgrad.array_api` has the functions of the [array API standard](https://data-apis.org/array-api/2024.12/), version
2024.12, by its names and arguments. Programs that ask a tensor for its functions run on every device, and record
gradients:

```python
import weftgrad as wg

def standardize(x):
    xp = x.__array_namespace__()
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0, correction=1)

x = wg.tensor([[1.0, 2.0], [3.0, 6.0]], requires_grad=True)
standardize(x).sum().backward()
```

`tests/test_array_libraries.py` calls 28 estimators and functions of scikit-learn (with `array_api_dispatch=True`), 23
of SciPy (with `SCIPY_ARRAY_API=1`) and array-api-compat with tensors, and compares with NumPy's arrays: scalers, PCA,
ridge regression, discriminants, mixtures, naive Bayes, metrics, kernels, cross-validation, statistics and special
functions.

What differs from the standard:

- There are no complex dtypes, so that `imag`, `__complex__` and the extension `fft` are missing, and none of the
  unsigned dtypes of 16, 32 and 64 bits. Sums of uint8 are int64, where the standard says uint64.
- The default floating dtype is float32, or what `set_default_dtype` sets.
- `Tensor.size` is PyTorch's method; `math.prod(x.shape)` is the number of elements, also for arrays of other libraries.
- Operators such as `x + y` promote like PyTorch's: a tensor without dimensions changes the dtype only if its kind is
  higher. Functions such as `xp.add(x, y)` promote like the standard. Operands of both may mix integers and floats.
- `sort` and `argsort` put NaN after all numbers, or before them if `descending`.

The other columns are the standard's signatures, and what exists here. `docs/refresh_array_api.py` writes the table, and
tests compare each function with NumPy's.
"""

REASONS = {
    "complex64": "no complex dtypes", "complex128": "no complex dtypes", "imag": "no complex dtypes",
    "__complex__": "no complex dtypes", "uint16": "no kernel has this dtype", "uint32": "no kernel has this dtype",
    "uint64": "no kernel has this dtype", "size": "PyTorch's method of this name returns the shape",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One name of the standard.

    Attributes:
        section: Its section.
        name: The name.
        parameters: The parameters of a function as text; None for other objects.
        owner: `info`, `linalg`, `fft`, `array`, or the empty string for the namespace itself.
    """

    section: str
    name: str
    parameters: str | None
    owner: str

    @property
    def text(self) -> str:
        return self.name if self.parameters is None else f"{self.name}({self.parameters})"


def entries() -> Iterator[Entry]:
    """Yield the names of the standard."""
    section = ""
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        if line.endswith(":"):
            section = line[:-1]
            continue
        text, _, owner = line.partition(" @")
        name, parenthesis, parameters = text.partition("(")
        yield Entry(section, name, parameters[:-1] if parenthesis else None, owner)


def value_of(entry: Entry) -> object:
    """Return the object of a name; MISSING if there is none."""
    namespace = wg.array_api
    owners = {
        "": namespace, "info": namespace.__array_namespace_info__(), "array": wg.Tensor, "linalg": namespace.linalg,
        "fft": getattr(namespace, "fft", None),
    }  # fmt: skip
    return getattr(owners[entry.owner], entry.name, MISSING)


def parameters_of(function: object) -> str:
    """Return a function's parameters as the standard writes them: names, `/` and `*`."""
    parts: list[str] = []
    parameters = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    for index, parameter in enumerate(parameters):
        previous = parameters[index - 1].kind if index else None
        if previous is parameter.POSITIONAL_ONLY and parameter.kind is not parameter.POSITIONAL_ONLY:
            parts.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and previous not in (
            parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL,
        ):  # fmt: skip
            parts.append("*")
        parts.append(f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name)
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    return ", ".join(parts)


def status(entry: Entry) -> str:
    """Return `yes`, or what is missing."""
    value = value_of(entry)
    if value is MISSING or entry.name in REASONS:
        reason = REASONS.get(entry.name) or {"fft": "no complex dtypes"}[entry.owner]
        return f"no: {reason}"
    if entry.parameters is None or entry.owner == "array":  # Python passes operands of methods by position
        return "yes"
    own = parameters_of(value)
    return "yes" if own == entry.parameters else f"with other parameters: `{own}`"


def page() -> str:
    """Return the text of the page."""
    lines = [HEAD]
    section = ""
    for entry in entries():
        if entry.section != section:
            section = entry.section
            lines += ["", f"## {section}", "", "| the standard | here |", "| --- | --- |"]
        lines.append(f"| `{entry.text}` | {status(entry)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
