# needs:
@triton.jit
def wg_sign(x):
    """-1, 0 or 1; 0 for NaN, as in PyTorch."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
