"""Arguments that many functions have: aliases of `dim` and `keepdim` (`aliases`), and `out` (`out`)."""
