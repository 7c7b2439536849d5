"""Derive gradients that were not generated ahead: third derivatives, and those of ops defined in the running process.

The generator processes the record's spec as it does at build time. This module imports the generator only when such a
derivative is needed. No other module of the runtime imports it, except for the text of the math library.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import GradientError
from .records import OpRecord, Rule, Text, make_record, registry

if TYPE_CHECKING:
    from ..codegen.render import Generated

__all__ = ["derive_rules", "register_generated"]

_lock = threading.RLock()


def derive_rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of `record`, and register the ops that they use.

    Raises:
        GradientError: The op has no derivative.
    """
    if not record.spec:  # the op is not from a spec: its rules are code, if it has any
        return {}
    with _lock:
        # lazy: start-up, because few programs need such derivatives
        from ..codegen.loader import op_from_mapping
        from ..codegen.model import SpecError
        from ..codegen.render import Generated

        generated = Generated(reserved_names=registry, registered_specs=registry.specs())
        try:
            # One order of derivatives. The record itself is registered already; only its gradients remain.
            name = generated.add(op_from_mapping(record.spec), 1, is_spec_op=True, rules_only=True)
            record_fields = generated.records.pop(name)
        except SpecError as error:
            raise GradientError(f"{record.name}: {error}") from None
        register_generated(generated)
        return {k: Rule(r.target, r.operands, result=r.result) for k, r in (record_fields.rules or {}).items()}


def register_generated(generated: Generated) -> list[OpRecord]:
    """Register the records of a `Generated`, and return them."""
    from ..codegen.render import record_literals  # lazy: start-up

    records = []
    for fields in generated.records.values():
        literals = record_literals(fields)
        texts = {target: Text(s.text, s.functions) for target, s in fields.rendered.sources.items()}
        record = make_record(**literals, texts=texts)  # type: ignore[arg-type]  # the generator knows no runtime types
        records.append(registry.add(record))
    return records
