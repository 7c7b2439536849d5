// needs:
// fixed types
// x modulo pi/2 for one large finite |x| (Payne & Hanek 1983): the 53-bit significand times 224 bits of 2/pi, chosen so
// that what is left out is a multiple of 4 or below 2^-137; 158 bits of fraction, then pi/2 times it in two doubles.
// Returns the quadrant modulo 4.
#if WIDTH == 1
constant uint wg_two_over_pi[40] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d,
};
static inline int wg_rem_pio2(double x, double *high, double *low) {
#pragma OPENCL FP_CONTRACT OFF
#pragma clang fp contract(off)
    ulong bits = AS_L(x), m = (bits & 0xfffffffffffffUL) | 0x10000000000000UL;
    int e = (int)((bits >> 52) & 2047) - 1075, first = e < 2 ? 0 : (e - 2) >> 5, s = e - 32 * first;
    uint p[10], out[5];
    ulong m0 = m & 0xffffffffUL, m1 = m >> 32, carry = 0, before = 0;
#pragma clang loop unroll(disable)
    for (int i = 0; i < 8; i++) {                           // p = m * window, lowest digit first
        ulong word = i < 7 ? wg_two_over_pi[first + 6 - i] : 0;
        ulong a = m0 * word + carry, b = m1 * before;       // the sum of both may need 65 bits
        ulong low_sum = (a & 0xffffffffUL) + (b & 0xffffffffUL);
        p[i] = (uint)low_sum;
        carry = (a >> 32) + (b >> 32) + (low_sum >> 32);
        before = word;
    }
    p[8] = (uint)carry;
    p[9] = (uint)(carry >> 32);
    int shift = 66 - s, digit = shift >> 5;
#pragma clang loop unroll(disable)
    for (int i = 0; i < 5; i++)
        out[i] = (uint)((((ulong)p[i + digit + 1] << 32) | p[i + digit]) >> (shift & 31));
    int q = (int)(out[4] >> 30), top = (int)(out[4] << 2) >> 2;
    q += (int)((out[4] >> 29) & 1);                         // the fraction as a signed number in [-1/2, 1/2)
    double t = top * 0x1p-30, u = out[3] * 0x1p-62, v = out[2] * 0x1p-94;
    double a = t + u, a1 = u - (a - t), b = a + v, b1 = v - (b - a);
    double c = a1 + b1 + out[1] * 0x1p-126;
    double h = b + c;
    c = c - (h - b);
    double hh = AS_D(AS_L(h) & ~0x7ffffffUL), hl = h - hh;
    double big = h * 1.57079632679489655800;                // pi/2 = this + 6.123e-17; Dekker's product
    double error = ((hh * 1.57079631090164184570 - big) + hh * 1.58932547122958567343e-08)
                   + (hl * 1.57079631090164184570 + hl * 1.58932547122958567343e-08);
    double rest = error + (h * 6.12323399573676603587e-17 + c * 1.57079632679489655800);
    double r = big + rest;
    double rl = rest - (r - big);
    int minus = x < 0;
    *high = minus ? -r : r;
    *low = minus ? -rl : rl;
    return minus ? (4 - (q & 3)) & 3 : q & 3;
}
#endif
