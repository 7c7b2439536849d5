"""Functions along a dimension that need Python around the generated ops: reductions, scans, sorting, counting.

`extrema`, `statistics`, `nan_reductions` and `softmax` reduce or normalize; `scans` accumulates; `differences` compares
neighbours; `sorting`, `order_statistics` and `quantiles` are about order; `unique_elements`, `searching` and
`histograms` count and look up.
"""
