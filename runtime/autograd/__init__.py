"""Reverse-mode differentiation: `node` records calls, `engine` runs backward, `rules` and `*_rules` hold gradients."""
