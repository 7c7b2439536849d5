# needs:
# Libdevice's, whose reduction of large arguments is exact. It takes subnormal numbers for 0.
@triton.jit
def wg_tan(x):
    return tl.where(tl.abs(x) < 1e-30, x, libdevice.tan(x))
