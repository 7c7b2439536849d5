# needs: nearest, two_to
# Cody & Waite: n = round(x / ln 2), r = x - n ln 2 in two parts, e^r by our own minimax fits (relative errors 2^-28 and
# 2^-58); 2^n as two factors, so that subnormal results and the largest come out right. NaN passes through the clamps
# because every test on it is false. At the upper clamp both factors are infinite: a finite one could be fused with a
# subtraction that follows, and infinity minus infinity would be -infinity. Triton's exp loses up to 6 bits in float32
# and has no float64.
@triton.jit
def wg_exp_scaled(x, k: tl.constexpr):
    """exp(x) * 2^k with no intermediate overflow."""
    if x.dtype == tl.float64:
        x = tl.where(x < -750.0, -750.0, x)
        x = tl.where(x > 1419.565 - k * 0.6931471805599453, 1419.565 - k * 0.6931471805599453, x)
        n, i = wg_nearest(x * 1.4426950408889634)
        r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
        p = r * 2.5118063280119242e-08 + 2.7631410727246063e-07
        p = p * r + 2.7557215596269358e-06
        p = p * r + 2.480148960459021e-05
        p = p * r + 0.00019841269918268218
        p = p * r + 0.0013888888947310716
        p = p * r + 0.008333333333306743
        p = p * r + 0.04166666666651443
        p = p * r + 0.166666666666667
        p = p * r + 0.5000000000000013
        p = p * r + 1.0
    else:
        x = tl.where(x < -110.0, -110.0, x)
        x = tl.where(x > 177.4457 - k * 0.6931472, 177.4457 - k * 0.6931472, x)
        n, i = wg_nearest(x * 1.4426950408889634)
        r = (x - n * 0.693359375) - n * -2.12194440e-4
        p = r * 0.0013950702 + 0.008368954
        p = p * r + 0.041666202
        p = p * r + 0.16666518
        p = p * r + 0.5
        p = p * r + 1.0
    y = p * r + 1.0
    i += k
    h = i >> 1
    return (y * wg_two_to(h)) * wg_two_to(i - h)
