# needs: log, round, turn
# In float64. On [1, 3]: (x - 1)(x - 2) P(x - 2), our own minimax fit (2^-57), so that the zeros at 1 and 2 keep their
# relative accuracy; [0, 1) and (3, 8) by lgamma(x + 1) = lgamma(x) + log x; from 8 on, Stirling's series (Abramowitz &
# Stegun 6.1.41); below 0, by reflection (6.1.17), where the zeros between poles are accurate absolutely.
@triton.jit
def wg_lgamma(of):
    x = of.to(tl.float64)
    minus = x < 0
    y = tl.where(minus, 1.0 - x, x)
    far = y >= 8
    low = y < 1
    t = tl.where(low, y + 1.0, y)
    product = tl.where(low, y, 1.0)
    for _ in tl.static_range(5):
        step = (t > 3) & (y < 8)
        product = tl.where(step, product * (t - 1.0), product)
        t = tl.where(step, t - 1.0, t)
    u = tl.where(low, y - 1.0, t - 2.0)
    logged = wg_log(tl.where(far, y, product))
    p = u * -8.213229753294747e-10 + 1.5824781161555247e-09
    p = p * u + 2.4850086714201313e-09
    p = p * u - 4.363177825877325e-09
    p = p * u - 8.998559521240892e-09
    p = p * u + 1.6339667130157997e-08
    p = p * u - 7.047131156398162e-10
    p = p * u + 5.668056457969783e-09
    p = p * u - 5.2131042284078855e-08
    p = p * u + 1.0446514199944326e-07
    p = p * u - 1.8606017469540718e-07
    p = p * u + 3.957045805093161e-07
    p = p * u - 8.555200066610614e-07
    p = p * u + 1.8114850603827136e-06
    p = p * u - 3.8464999664828524e-06
    p = p * u + 8.22120232475864e-06
    p = p * u - 1.7661859112488322e-05
    p = p * u + 3.816908391695938e-05
    p = p * u - 8.30950993337301e-05
    p = p * u + 0.00018255261432518151
    p = p * u - 0.00040570740000312995
    p = p * u + 0.0009153769241320524
    p = p * u - 0.0021081308338253323
    p = p * u + 0.004998641164622912
    p = p * u - 0.01238419219337446
    p = p * u + 0.03296500062115698
    p = p * u - 0.1003173016743539
    p = p * u + 0.42278433509846713
    near = (u + 1.0) * (u * p) + tl.where(low, 0.0 - logged, logged)
    v = 1.0 / y
    z = v * v
    s = z * -0.029550653594771242 + 0.00641025641025641
    s = s * z - 0.0019175269175269176
    s = s * z + 0.0008417508417508417
    s = s * z - 0.0005952380952380953
    s = s * z + 0.0007936507936507937
    s = s * z - 0.002777777777777778
    s = s * z + 0.08333333333333333
    r = tl.where(far, (y - 0.5) * (logged - 1.0) + (0.4189385332046728 + v * s), near)
    sine, _ = wg_turn((x - wg_round(x)) * 0.5)
    reflected = (1.1447298858494002 - wg_log(tl.abs(sine))) - r
    r = tl.where(minus, tl.where(sine == 0, float("inf"), reflected), r)
    r = tl.where(tl.abs(x) == float("inf"), float("inf"), r)
    return r.to(of.dtype)
