# needs: chebyshev
# In float64.
@triton.jit
def wg_chebyshev_t(n, x):
    """Chebyshev's polynomial of the first kind of degree n."""
    return wg_chebyshev(1.0, tl.full((), 0.0, tl.float64), n, x)
