# needs: nearest, two_to
# e^x - 1 = 2^n ((e^r - 1) + (1 - 2^-n)), where e^r - 1 = r + r^2 P(r), P our own minimax fits (relative errors 2^-32
# and 2^-62).
@triton.jit
def wg_expm1(x):
    if x.dtype == tl.float64:
        a = tl.where(x < -45.0, -45.0, x)
        a = tl.where(a > 720.0, 720.0, a)
        n, i = wg_nearest(a * 1.4426950408889634)
        most = tl.where(i > 120, 120, i)
        r = (a - n * 0.6931471803691238) - n * 1.9082149292705877e-10
        p = r * 2.0924563681140205e-09 + 2.510914751918637e-08
        p = p * r + 2.7557242356578564e-07
        p = p * r + 2.755724391131049e-06
        p = p * r + 2.480158736105145e-05
        p = p * r + 0.0001984126988640145
        p = p * r + 0.0013888888888866568
        p = p * r + 0.008333333333321532
        p = p * r + 0.0416666666666667
        p = p * r + 0.16666666666666677
        p = p * r + 0.5
    else:
        a = tl.where(x < -20.0, -20.0, x)
        a = tl.where(a > 100.0, 100.0, a)
        n, i = wg_nearest(a * 1.4426950408889634)
        most = tl.where(i > 60, 60, i)
        r = (a - n * 0.693359375) - n * -2.12194440e-4
        p = r * 0.00019914334 + 0.0013941103
        p = p * r + 0.008333273
        p = p * r + 0.041666355
        p = p * r + 0.16666667
        p = p * r + 0.5
    y = (r + (r * r) * p) + (1.0 - wg_two_to(0 - most))
    h = i >> 1
    y = (y * wg_two_to(h)) * wg_two_to(i - h)
    return tl.where(x == 0, x, y)
