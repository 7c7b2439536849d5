# needs:
@triton.jit
def wg_square(x):
    return x * x
