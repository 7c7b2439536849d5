# needs:
# Libdevice's, whose reduction of large arguments is exact.
@triton.jit
def wg_tan(x):
    return libdevice.tan(x)
