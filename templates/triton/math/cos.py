# needs:
@triton.jit
def wg_cos(x):
    return libdevice.cos(x)
