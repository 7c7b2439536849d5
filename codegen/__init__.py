"""Specs in, source text out: loader, expressions, derivatives, printers, rendering."""
