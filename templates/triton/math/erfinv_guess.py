# needs: log, sqrt
# x P(w) with w = -log(1 - x^2) up to 5, x P(sqrt(w)) beyond: the form of M. Giles, "Approximating the erfinv
# function" (2010); our own minimax fits (2^-23, and 2^-20 up to 1 - |x| = 2^-53).
@triton.jit
def wg_erfinv_guess(x):
    w = 0.0 - wg_log((1.0 - x) * (1.0 + x))
    u = w - 2.5
    p = u * 2.8506193e-08 + 3.437152e-07
    p = p * u - 3.5285318e-06
    p = p * u - 4.396635e-06
    p = p * u + 0.00021860114
    p = p * u - 0.0012537081
    p = p * u - 0.0041777072
    p = p * u + 0.24664073
    p = p * u + 1.5014094
    if x.dtype == tl.float64:
        v = wg_sqrt(w) - 4.0
        t = v * -1.600300928101851e-06 + 1.9452895185406494e-05
        t = t * v - 6.711712785423245e-05
        t = t * v + 8.138951005040153e-05
        t = t * v - 5.7123770385006176e-05
        t = t * v + 0.00027151071154568016
        t = t * v - 0.000914570869006119
        t = t * v + 0.0012853943220935183
        t = t * v + 1.0095039424433603
        t = t * v + 3.8397819681622347
    else:
        v = wg_sqrt(w) - 3.0
        t = v * -0.00015964115 + 8.230265e-05
        t = t * v + 0.0012921664
        t = t * v - 0.003656315
        t = t * v + 0.0057655247
        t = t * v - 0.00762631
        t = t * v + 0.009435048
        t = t * v + 1.0016743
        t = t * v + 2.832977
    return x * tl.where(w < 5, p, t)
