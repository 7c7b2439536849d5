# needs:
@triton.jit
def wg_join_columns(columns, FIRST: tl.constexpr, STEP: tl.constexpr, COUNT: tl.constexpr):
    """The block of COUNT columns, a power of two above 1: every STEP-th vector of a tuple, from number FIRST."""
    if COUNT == 2:
        return tl.join(columns[FIRST], columns[FIRST + STEP])
    else:
        evens = wg_join_columns(columns, FIRST, STEP * 2, COUNT // 2)
        odds = wg_join_columns(columns, FIRST + STEP, STEP * 2, COUNT // 2)
        return tl.reshape(tl.join(evens, odds), (evens.shape[0], COUNT))
