# needs:
@triton.jit
def wg_split_columns(block, COUNT: tl.constexpr):
    """The columns of a block with COUNT of them, a power of two above 1, as a tuple of vectors. A thread that holds
    whole rows moves nothing."""
    if COUNT == 2:
        return tl.split(block)
    else:
        evens, odds = tl.split(tl.reshape(block, (block.shape[0], COUNT // 2, 2)))
        even_columns = wg_split_columns(evens, COUNT // 2)
        odd_columns = wg_split_columns(odds, COUNT // 2)
        columns = ()
        for k in tl.static_range(COUNT // 2):
            columns = columns + (even_columns[k], odd_columns[k])
        return columns
