"""Tensor's methods that are not ops, and the installation of those that are.

Read `methods` first: it lists the classes whose methods Tensor gets, one for each of the modules `properties`,
`view_methods`, `autograd_methods`, `conversion`, `dtype_methods`, `creation_methods` and `protocols`. Then come
`generated_methods` (ops and operators), the tables `METHODS` of other packages, and last `derived_methods` (aliases and
in-place forms). `functions` has functions that call a method.
"""
