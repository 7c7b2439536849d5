"""Functions behind the layers of `nn`: convolutions, pooling, recurrent networks, resampling, padding.

They are not part of `nn`, so that `import weftgrad` does not import the layers.
"""
