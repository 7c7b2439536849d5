# needs: copysign, log, round, turn
# In float64. psi(x + 1) = psi(x) + 1 / x up to 10, then the asymptotic series (Abramowitz & Stegun 6.3.18); below 0 by
# reflection (6.3.7). Errors are absolute (a few 1e-16) near its zeros. -infinity at 0 and NaN at negative integers, as
# PyTorch.
@triton.jit
def wg_digamma(of):
    x = of.to(tl.float64)
    minus = x < 0
    y = tl.where(minus, 1.0 - x, x)
    sum = tl.full((), 0.0, tl.float64)
    for _ in tl.static_range(10):
        step = y < 10
        sum = tl.where(step, sum + 1.0 / y, sum)
        y = tl.where(step, y + 1.0, y)
    v = 1.0 / y
    z = v * v
    s = z * -0.4432598039215686 + 0.08333333333333333
    s = s * z - 0.021092796092796094
    s = s * z + 0.007575757575757576
    s = s * z - 0.004166666666666667
    s = s * z + 0.003968253968253968
    s = s * z - 0.008333333333333333
    s = s * z + 0.08333333333333333
    r = (wg_log(y) - (v * 0.5 + z * s)) - sum
    f = x - wg_round(x)
    sine, cosine = wg_turn(f * 0.5)
    r = tl.where(minus, tl.where(f == 0, float("nan"), r - 3.141592653589793 * (cosine / sine)), r)
    pole = wg_copysign(tl.full((), float("inf"), tl.float64), x * -1.0)
    return tl.where(x == 0, pole, r).to(of.dtype)
