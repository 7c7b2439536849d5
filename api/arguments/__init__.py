"""Arguments that many functions have: `aliases` of `dim` and `keepdim`, `out`, and the `types` of arguments."""
