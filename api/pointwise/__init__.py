"""Functions of single elements that need Python around the generated ops.

`functions` holds arithmetic and comparisons, `composites` functions composed of several ops,
`floating_point` functions of exponents and neighbouring numbers.
"""
