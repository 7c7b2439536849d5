# needs: copysign, div, exp_scaled
# |x| < 1: x + x^3 P(x^2), our own minimax fits (2^-34 and 2^-63). Beyond: e^|x| / 2 - 1 / (2 e^|x|), with 1/2
# inside the exponential.
@triton.jit
def wg_sinh(x):
    a = tl.abs(x)
    z = a * a
    if x.dtype == tl.float64:
        p = z * 7.759311384066814e-13 + 1.6057240397769124e-10
        p = p * z + 2.5052123397400844e-08
        p = p * z + 2.755731915534703e-06
        p = p * z + 0.0001984126984143764
        p = p * z + 0.008333333333333139
        p = p * z + 0.16666666666666669
    else:
        p = z * 2.8174384e-06 + 0.00019836066
        p = p * z + 0.0083333505
        p = p * z + 0.16666667
    e = wg_exp_scaled(a, -1)
    r = tl.where(a < 1, a + a * (z * p), e - wg_div(tl.full((), 0.25, x.dtype), e))
    return wg_copysign(r, x)
