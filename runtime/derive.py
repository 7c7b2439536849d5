"""Derivatives that were not generated ahead: the third order, and gradients of ops made in the running process.

The record's spec goes through the same road as at build time. This is the one place from which the runtime imports
the generator, and only when such a derivative is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from .errors import GradientError
from .records import OpRecord, Rule, Text, make_record, registry

__all__ = ["derive_rules", "register_generated"]

_lock = threading.RLock()


def derive_rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of `record`, whose ops are registered on the way."""
    if not record.spec:
        return {}
    with _lock:
        from ..codegen.loader import op_from_mapping
        from ..codegen.model import SpecError
        from ..codegen.render import Generated

        made = Generated(taken=registry)
        try:
            own = made.records.pop(made.add(op_from_mapping(record.spec), 1, named=True, known=True))
        except SpecError as error:
            raise GradientError(f"{record.name}: {error}") from None
        register_generated(made)
        return {k: Rule(r.target, r.operands, result=r.result) for k, r in (own.rules or {}).items()}


def register_generated(made: Any) -> list[OpRecord]:
    """Register what the generator made; returns the records."""
    from ..codegen.render import record_literals

    found = []
    for data in made.records.values():
        literals = record_literals(data)
        texts = {target: Text(s.text, s.functions) for target, s in data.rendered.sources.items()}
        found.append(registry.add(make_record(**literals, texts=texts)))
    return found
