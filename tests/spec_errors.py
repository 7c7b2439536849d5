"""Texts of specs, and the errors that the loader reports, for tests of specs."""

import json
import textwrap

import pytest

from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors

__all__ = ["errors_of", "op"]


def errors_of(text: str, **options) -> list[str]:
    with pytest.raises(SpecErrors) as error_info:
        load_text(textwrap.dedent(text), "my.yaml", **options)
    return [str(e) for e in error_info.value.errors]


def op(**fields) -> str:
    """Return a pointwise op as YAML with `fields` replaced, or removed if None; JSON quoting allows any string."""
    entry = {"op": "probe(input)", "kind": "pointwise", "dtypes": "float", "out": "exp(input)", **fields}
    return "- " + json.dumps({k: v for k, v in entry.items() if v is not None}) + "\n"
