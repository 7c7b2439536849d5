# needs: store
@triton.jit
def wg_store_tile(p, start, column, step, inside, value, CLASS: tl.constexpr):
    """Store a tile whose rows begin at `start`: contiguous (class 1) or `step` apart."""
    if CLASS == 1:
        wg_store(p + (start[:, None] + column[None, :]), value, inside)
    else:
        wg_store(p + (start[:, None] + (column * step)[None, :]), value, inside)
