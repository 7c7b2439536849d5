# needs:
# Libdevice's, whose reduction of large arguments is exact.
@triton.jit
def wg_sin(x):
    return libdevice.sin(x)
