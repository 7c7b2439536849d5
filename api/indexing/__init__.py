"""Read and write elements at positions: `x[items]`, gather, scatter, masks, bounds checks.

`subscripts` holds `x[items]` and `x[items] = value`, `gathering` the functions that read, `scattering` and
`index_writes` those that write. `advanced_indices` combines index tensors and masks, `assignment` prepares assigned
values, and `bounds` checks index tensors.
"""
