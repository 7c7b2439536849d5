// needs:
// J0 for 0 <= x <= 8: its two zeros there, each in two parts, times a polynomial of 64 - x^2 whose coefficients are
// all positive, since J0 has no zero between; our own Chebyshev fit (2^-60).
static inline __attribute__((overloadable)) F wg_bessel_j0_near(F x) {
    F v = (K(8.0) - x) * (K(8.0) + x) * K(0.015625);
    F p = (F)(K(3.722605935125672e-13));
    p = p * v + K(3.772941991223715e-12);
    p = p * v + K(6.572903718946708e-11);
    p = p * v + K(8.552528311759046e-10);
    p = p * v + K(9.815542206889463e-09);
    p = p * v + K(9.595330645088123e-08);
    p = p * v + K(7.895177011064387e-07);
    p = p * v + K(5.372980141329914e-06);
    p = p * v + K(2.9604873258349502e-05);
    p = p * v + K(0.00012855143969404793);
    p = p * v + K(0.00042460926989994425);
    p = p * v + K(0.0010162823041464525);
    p = p * v + K(0.001641549848154562);
    p = p * v + K(0.0015945269601802215);
    p = p * v + K(0.0007453607032954436);
    p = p * v + K(8.793873470842997e-05);
    p = p * (x - K(2.404825557695773) - K(-1.176691651530894e-16)) * (x + K(2.404825557695773)) * (x - K(5.520078110286311) - K(8.088597146146722e-17)) * (x + K(5.520078110286311));
    return p;
}
