"""Recurrent networks over whole sequences: one direction of a layer, step by step or in fused kernels.

Read `directions` first. `steps` holds its building blocks: row positions, moving views, repeated launches.
"""
