# needs:
@triton.jit
def wg_store(p, value, mask):
    """Store `value` at `p`, rounded to nearest even; as bool, whether it is nonzero (NaN is)."""
    if p.dtype.element_ty == tl.int1:
        tl.store(p, value != 0, mask=mask)
    else:
        tl.store(p, value.to(p.dtype.element_ty), mask=mask)
