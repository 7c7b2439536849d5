// needs: log_split, log_tail
// e log10(2) + log(1 + f) / ln 10, with log10(2) = 0.301025390625 + 4.605038981195214e-6 and 1 / ln 10 in two parts.
// Largest error measured: 0.91 ULP in float, 0.95 in double.
static inline __attribute__((overloadable)) F wg_log10(F x) {
    F e, f = wg_log_split(x, &e), t = wg_log_tail(f);
    F low = e * K(4.605038981195213738894724493e-6) + t * K(0.4342944819032518276511289189);
    F r = e * K(0.301025390625) + (f * K(0.4375) + (f * K(-0.0032055180967481723488710811) + low));
    return wg_log_ends(x, r);
}
