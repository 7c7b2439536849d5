# needs: log_ends, log_split, log_tail
# e log10(2) + log(1 + f) / ln 10, with log10(2) = 0.301025390625 + 4.605038981195214e-6 and 1 / ln 10 in two parts.
@triton.jit
def wg_log10(x):
    f, e = wg_log_split(x)
    low = e * 4.605038981195214e-6 + wg_log_tail(f) * 0.4342944819032518
    r = e * 0.301025390625 + (f * 0.4375 + (f * -0.003205518096748172 + low))
    return wg_log_ends(x, r)
