"""Functions of single elements that need Python around the generated ops.

`arithmetic` has `add`, `div`, `clamp` and their in-place forms; `comparison` has `isclose`, `equal` and `where`;
`type_info` has `finfo` and `result_type`. `composites` are functions composed of several ops, `special_functions` has
`polygamma` and `logit`, `incomplete_gamma` has `igamma` and `igammac`, `floating_point` has exponents and neighbouring
numbers, and `complex_functions` has PyTorch's functions of complex numbers, for real ones.
"""
