# needs: chebyshev
# In float64.
@triton.jit
def wg_chebyshev_u(c, n, x):
    """Chebyshev's polynomial of degree n: of the second kind for c = 0, the third for c = 1, the fourth for c = -1."""
    return wg_chebyshev(2.0, c, n, x)
