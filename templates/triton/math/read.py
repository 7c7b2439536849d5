# needs:
@triton.jit
def wg_read(p, offset, inside, numbers, CLASS: tl.constexpr, NUMBER: tl.constexpr, C: tl.constexpr):
    """Load an operand as C: class 3 (a number of the call), 0 (one element) or any other (one element per offset)."""
    if CLASS == 3:
        value = numbers[NUMBER].to(C)
    elif CLASS == 0:
        value = tl.load(p).to(C)
    else:
        value = tl.load(p + offset, mask=inside, other=0).to(C)
    return value
