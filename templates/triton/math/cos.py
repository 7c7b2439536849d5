# needs:
# Libdevice's, whose reduction of large arguments is exact.
@triton.jit
def wg_cos(x):
    return libdevice.cos(x)
