"""Names that modules of torch have beside those of weftgrad's modules; `tables.ADDITIONS` says which."""
