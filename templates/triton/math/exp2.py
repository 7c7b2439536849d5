# needs: nearest, two_to
# 2^x = 2^n (1 + r P(r)), n = round(x), r = x - n exact; P our own minimax fits (relative errors 2^-29 and 2^-58).
@triton.jit
def wg_exp2(x):
    if x.dtype == tl.float64:
        x = tl.where(x < -1080.0, -1080.0, x)
        x = tl.where(x > 1030.0, 1030.0, x)
        n, i = wg_nearest(x)
        r = x - n
        p = r * 4.457415448022319e-10 + 7.073897997603927e-09
        p = p * r + 1.0178046265355936e-07
        p = p * r + 1.3215434609470128e-06
        p = p * r + 1.5252733868040478e-05
        p = p * r + 0.00015403530458466916
        p = p * r + 0.0013333558146378475
        p = p * r + 0.009618129107593052
        p = p * r + 0.05550410866482174
        p = p * r + 0.24022650695910133
        p = p * r + 0.6931471805599453
    else:
        x = tl.where(x < -155.0, -155.0, x)
        x = tl.where(x > 130.0, 130.0, x)
        n, i = wg_nearest(x)
        r = x - n
        p = r * 0.00015476464 + 0.0013400404
        p = p * r + 0.009618003
        p = p * r + 0.055503275
        p = p * r + 0.2402265
        p = p * r + 0.6931472
    h = i >> 1
    return ((1.0 + r * p) * wg_two_to(h)) * wg_two_to(i - h)
