// needs:
// J1 for 0 <= x <= 8: its two zeros there, each in two parts, times a polynomial of 64 - x^2 whose coefficients are
// all positive, since J1 has no zero between; our own Chebyshev fit (2^-60).
static inline __attribute__((overloadable)) F wg_bessel_j1_near(F x) {
    F v = (K(8.0) - x) * (K(8.0) + x) * K(0.015625);
    F p = (F)(K(1.935190364529179e-13));
    p = p * v + K(1.848785170266421e-12);
    p = p * v + K(3.0041780021477965e-11);
    p = p * v + K(3.6380161477318215e-10);
    p = p * v + K(3.8607680836379195e-09);
    p = p * v + K(3.4661308317605526e-08);
    p = p * v + K(2.597490306513581e-07);
    p = p * v + K(1.5936449654994287e-06);
    p = p * v + K(7.81581238721541e-06);
    p = p * v + K(2.971249258492992e-05);
    p = p * v + K(8.402550596832427e-05);
    p = p * v + K(0.0001667784652160717);
    p = p * v + K(0.00021255683740965088);
    p = p * v + K(0.0001489086539919993);
    p = p * v + K(4.0232757124382825e-05);
    p = p * (x - K(3.8317059702075125) - K(-1.5269184090088067e-16)) * (x + K(3.8317059702075125)) * (x - K(7.015586669815619) - K(-9.414165653410389e-17)) * (x + K(7.015586669815619));
    return x * p;
}
