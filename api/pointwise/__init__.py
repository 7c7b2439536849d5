"""Functions of single elements that need Python around the generated ops.

`functions` holds arithmetic and comparisons, `composites` functions composed of several ops, `numeric` tools for
floating-point numbers.
"""
