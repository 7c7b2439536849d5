"""Jinja2 templates and kernel headers, a folder a target; data, no code."""
