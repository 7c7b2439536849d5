# needs:
@triton.jit
def wg_store(p, value, mask):
    """Store `value` as what `p` points at, to nearest even; into bool, whether it is not 0 (NaN is not)."""
    if p.dtype.element_ty == tl.int1:
        tl.store(p, value != 0, mask=mask)
    else:
        tl.store(p, value.to(p.dtype.element_ty), mask=mask)
