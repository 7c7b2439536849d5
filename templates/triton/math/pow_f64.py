# needs: log_split, nearest, pow_ends, two_to, upper
# The method of fdlibm's e_pow.c without its table: log2 |x| in two doubles from s = f / (2 + f) in two doubles, times
# y, and 2^ of the sum. A number that ends in _h has 26 bits, so that products of two such are exact, and it does not
# matter whether they are fused into sums. The polynomials are our own minimax fits (2^-65 of log's correction, 2^-64 of
# 2^r).
@triton.jit
def wg_pow_f64(x, y):
    f, e = wg_log_split(tl.abs(x))
    g = tl.where(y > 1.1805916207174113e21, 1.1805916207174113e21, y)
    g = tl.where(g < -1.1805916207174113e21, -1.1805916207174113e21, g)
    d = 2.0 + f
    d_h = wg_upper(d)
    d_l = (2.0 - d_h) + f
    s = f / d
    s_h = wg_upper(s)
    s_l = ((f - s_h * d_h) - s_h * d_l) / d
    z = s * s
    p = z * 0.19795235926824079 + 0.19885151663731224
    p = p * z + 0.23080138948334097
    p = p * z + 0.27272676493849174
    p = p * z + 0.33333333780430136
    p = p * z + 0.4285714285514702
    p = p * z + 0.6000000000000338
    p = z * z * p + s_l * (s_h + s)  # log(1 + f) = 2/3 s (3 + s^2 + p)
    z_h = s_h * s_h
    t_h = wg_upper(3.0 + z_h + p)
    t_l = p - ((t_h - 3.0) - z_h)
    u = s_h * t_h
    v = s_l * t_h + t_l * s
    p_h = wg_upper(u + v)
    p_l = v - (p_h - u)
    high = 0.961796700954437255859375 * p_h  # 2 / (3 ln 2) in two parts
    low = -7.02846165095275826516e-09 * p_h + p_l * 0.961796693925975554329
    log_h = wg_upper((high + low) + e)
    log_l = low - ((log_h - e) - high)
    g_h = wg_upper(g)
    h = g_h * log_h
    rest = (g - g_h) * log_h + g * log_l
    rest = tl.where((h > 4096.0) | (h < -4096.0), 0.0, rest)
    h = tl.where(h > 4096.0, 4096.0, h)
    h = tl.where(h < -4096.0, -4096.0, h)
    n, i = wg_nearest(h + rest)
    r = (h - n) + rest
    i = tl.where(i > 2000, 2000, i)
    i = tl.where(i < -2000, -2000, i)
    q = r * 2.57417745070239e-11 + 4.456692950242313e-10
    q = q * r + 7.054888278204402e-09
    q = q * r + 1.0178051088904249e-07
    q = q * r + 1.3215486832969688e-06
    q = q * r + 1.5252733856507298e-05
    q = q * r + 0.00015403530393341236
    q = q * r + 0.0013333558146390177
    q = q * r + 0.009618129107628496
    q = q * r + 0.0555041086648217
    q = q * r + 0.24022650695910072
    q = q * r + 0.6931471805599453
    k = i >> 1
    return wg_pow_ends(x, y, (1.0 + q * r) * wg_two_to(k) * wg_two_to(i - k))
