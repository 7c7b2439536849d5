"""Reverse-mode differentiation: nodes recorded by calls, and the engine that walks them."""
