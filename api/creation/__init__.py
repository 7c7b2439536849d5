"""Functions that create tensors.

Read `factories` (`zeros`, `full`, `empty`) first. `from_data` converts lists and arrays, `sequences` has `arange` and
`linspace`, `windows` has the windows of signal processing, and `legacy_constructors` has `FloatTensor` and the like.
`options` reads the arguments that all of them share, such as `dtype` and `device`.
"""
