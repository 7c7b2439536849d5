# needs:
@triton.jit
def wg_quick_quotient(n, divisor, multiplier, shift):
    """The quotient of n, not negative, and a divisor, by a multiplication if n has 32 bits.

    multiplier, shift: Of the planner's `magic_numbers`; the multiplier's bits are those of an unsigned number.

    Source: T. Granlund and P. Montgomery, "Division by Invariant Integers using Multiplication", 1994, figure 4.1.
    """
    if n.dtype == tl.int32:
        high = tl.umulhi(n.to(tl.uint32), multiplier.to(tl.uint32, bitcast=True))
        return ((high + n.to(tl.uint32)) >> shift.to(tl.uint32)).to(tl.int32)
    else:
        return n // divisor
