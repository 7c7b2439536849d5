"""Test points of math functions for every target: arguments, recorded values, and errors in ULP."""

import math

import numpy as np

# Rounded to double from 40 digits of mpmath.
RECORDED: dict[str, list[tuple[float, float]]] = {
    "erf": [
        (1e-20, 1.1283791670955125e-20), (0.001, 0.0011283787909692365), (0.3, 0.3286267594591274),
        (0.9, 0.7969082124228322), (1.0, 0.8427007929497149), (1.5, 0.9661051464753108),
        (2.75, 0.9998993780778803), (5.5, 0.9999999999999927),
    ],
    "erfc": [
        (-3.0, 1.9999779095030015), (-0.2, 1.2227025892104784), (1e-09, 0.9999999988716208), (0.4, 0.5716076449533315),
        (0.75, 0.28884436634648486), (1.75, 0.013328328780817557), (4.5, 1.9661604415428876e-10),
        (9.0, 4.13703174651381e-37), (20.0, 5.395865611607901e-176), (26.5, 2.2109076642637343e-307),
    ],
    "lgamma": [
        (1e-10, 23.025850929882736), (0.3, 1.0957979948180756), (0.999, 0.0005780385328913802),
        (1.0001, -5.771334222047127e-05), (1.5, -0.12078223763524522), (2.2, 0.09694746679063887),
        (3.75, 1.486815578593417), (7.9, 8.32426586800881), (8.1, 8.72738826343204), (30.5, 72.9534711841694),
        (1e8, 1742068066.1038346), (-0.5, 1.2655121234846454), (-1.3, 1.2024757863901114), (-10.7, -15.416789096416636),
    ],
    "digamma": [
        (1e-10, -10000000000.577215), (0.3, -3.502524222200133), (1.0, -0.5772156649015329), (1.9, 0.35618416116405965),
        (3.5, 1.103156640645243), (9.9, 2.2411803166063815), (50.25, 3.90702729700628), (1e8, 18.420680738952367),
        (-0.7, -2.073952793628704), (-3.2, 5.635370221172645), (-20.6, 2.02860126183962),
    ],
    "trigamma": [
        (1e-10, 1e+20), (0.3, 12.245364546107732), (1.0, 1.6449340668482264), (1.9, 0.6879720582426356),
        (3.5, 0.3303577561002349), (9.9, 0.1062830416287406), (50.25, 0.020099825840728038), (1e8, 1.000000005e-08),
        (-0.7, 14.28618087263834), (-3.2, 28.298186402194034), (-20.6, 10.864181760517212),
    ],
    "erfinv": [
        (1e-20, 8.86226925452758e-21), (0.001, 0.0008862271574665521), (-0.25, -0.2253120550121781),
        (0.5, 0.4769362762044699), (0.75, 0.8134198475976185), (0.95, 1.3859038243496777),
        (0.999, 2.3267537655135246), (-0.9999999, -3.7665625816384707), (0.9999999999999999, 5.8635847487551676),
    ],
}  # fmt: skip
# polygamma, rounded in the same way: order, argument, value.
POLYGAMMA = [
    (1, 0.3, 12.245364546107732), (1, -3.2, 28.298186402194034), (2, 0.001, -2000000002.3976321),
    (2, 2.5, -0.2362040516417274), (2, -0.7, -69.44163279863854), (2, 11.0, -0.009049834970802067),
    (2, 1e8, -1.00000001e-16), (3, 1.0, 6.493939402266829), (3, -20.6, 283.60208741451584),
    (4, 0.5, -771.4742498266672), (5, 30.25, 1.0284039152471518e-06), (6, -2.25, 11791224.534791825),
    (8, 9.75, -9.085746536588107e-05), (11, 3.0, 77.67523108670233), (17, 0.125, 6.407495074534063e+30),
    (20, 25.0, -1.9464147666563566e-11), (33, 31.5, 1.528954146063631e-14), (64, 2.0, -3.43927718841123e+69),
    (120, 40.0, -99697.77170227753), (160, 1.5, -2.1026332735704114e+256), (200, 300.0, -2.03430351276749e-123),
    (100, 1e4, -9.379363201543512e-245), (3, 1e-40, 6.000000000000002e+160), (4, -0.0009765625, 2.702159776422295e+16),
]  # fmt: skip
EDGES = [
    0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e-310, -1e-310, 1e-45,
    -1e-45, 1e-40, -1e-40, 1.1754944e-38, 2.2250738585072014e-308, 3.4e38, -3.4e38, 1.7e308, -1.7e308, 88.8, -88.8, 104,
    -104, 150, -150, 709.8, -709.8, 745, -745.2, -746, 1e5, 1e10, 1e-3, 1e-10, 1e-20,
]  # fmt: skip


def any_bits(dtype: type, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return floats with random bits, including NaN and subnormals."""
    if dtype is np.float32:
        return rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    return rng.integers(0, 2**64, n, dtype=np.uint64).view(np.float64)


def inputs(dtype: type, rng: np.random.Generator) -> np.ndarray:
    """Return the arguments to test functions with, in float32 or float64."""
    parts = [
        any_bits(dtype, 20000, rng), np.array(EDGES), np.arange(-200, 200) * 0.5, rng.normal(size=10000),
        rng.normal(size=5000) * 10, rng.uniform(-110, 110, 10000), rng.uniform(-1, 1, 10000),
        1 + rng.normal(size=3000) * 0.01, 1 + rng.normal(size=3000) * 1e-4, rng.uniform(-1e5, 1e5, 10000),
        10 ** rng.uniform(-30, 5, 10000) * rng.choice([-1, 1], 10000),
    ]  # fmt: skip
    if dtype is np.float64:
        parts.append(rng.uniform(-750, 750, 10000))
    return np.concatenate([part.astype(dtype) for part in parts])


def ulps(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the errors in ULP of the dtype of `actual`; infinity if only one of both is finite or NaN."""
    dtype = actual.dtype
    limit = float(np.finfo(dtype).max)
    rounded = expected.astype(dtype)
    errors = np.full(actual.shape, np.inf)
    errors[(actual == rounded) | (np.isnan(actual) & np.isnan(rounded))] = 0
    finite = np.isfinite(rounded) & np.isfinite(actual)
    spacing = np.spacing(np.abs(rounded[finite])).astype(expected.dtype)
    errors[finite] = (np.abs(actual[finite].astype(expected.dtype) - expected[finite]) / spacing).astype(np.float64)
    border = ~finite & (np.abs(actual) >= limit) & (np.abs(expected) >= limit * (1 - 1e-6))
    return np.where(border, np.minimum(errors, 1), errors)
