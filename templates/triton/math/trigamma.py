# needs: round, turn
# In float64. psi'(x + 1) = psi'(x) - 1 / x^2 up to 10, then the asymptotic series (Abramowitz & Stegun 6.4.12); below 0
# by reflection (6.4.7). Infinite at 0 and at negative integers.
@triton.jit
def wg_trigamma(of):
    x = of.to(tl.float64)
    minus = x < 0
    y = tl.where(minus, 1.0 - x, x)
    sum = tl.full((), 0.0, tl.float64)
    for _ in tl.static_range(10):
        step = y < 10
        sum = tl.where(step, sum + 1.0 / (y * y), sum)
        y = tl.where(step, y + 1.0, y)
    v = 1.0 / y
    z = v * v
    s = z * -7.092156862745098 + 1.1666666666666667
    s = s * z - 0.2531135531135531
    s = s * z + 0.07575757575757576
    s = s * z - 0.03333333333333333
    s = s * z + 0.023809523809523808
    s = s * z - 0.03333333333333333
    s = s * z + 0.16666666666666666
    r = sum + (v + z * (0.5 + v * s))
    sine, _ = wg_turn((x - wg_round(x)) * 0.5)
    reflection = 3.141592653589793 / sine
    return tl.where(minus, reflection * reflection - r, r).to(of.dtype)
