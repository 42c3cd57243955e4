#!/usr/bin/env python3
"""Fits the functions of layers/math/gelu.h and gelu_inverse.h and checks their errors.

usage: fit_gelu.py [--write]     --write replaces layers/math/gelu_coefficients.h

exp       exp(r) on |r| <= ln(2)/2, relative error
mills     Phi(-t) exp(t^2/2) as a polynomial in v = 1/(1 + 0.3 t) on 0 <= t <= 14, relative error
inverse   the slope d = GELU'(x) from the output y, for the exact and the tanh form; x* is where y is least, y*, and
            s = sqrt(y - y*): d is smooth in s through the minimum, where it is not in y
            right of x*   d = s P(t)/Q(t), t = s - 1.6, for y <= 5.6; 1 above
            left of x*    d = s v T(w), v = sqrt(s0 - s), w = sqrt(v), s0 = sqrt(-y*): d ends as y sqrt(log), which roots tame
          absolute error of d
taylor    y around x*, powers of x - x*, for |x - x*| < 1/8: an error of y becomes one of d, magnified by 0.43/d

exp and mills are minimax fits by Remez exchange, P/Q and T by Lawson's reweighting (least squares whose weights follow the
error), with values from mpmath (40 digits), rounded to float32. Then all is evaluated as the C++ does, in float32 with fused
multiply-add (emulated in float64), at points the fit has not seen; a missed bound ends the program with an error.
Needs mpmath and numpy, which the environment of scripts/bootstrap.sh has.
"""
import math
import pathlib
import sys

import mpmath
import numpy as np

mpmath.mp.dps = 40
HEADER = pathlib.Path(__file__).resolve().parent.parent / "layers/math/gelu_coefficients.h"

RIGHT_SHIFT = 1.6  # in plain powers of s the condition number is 1e3, about this point 4
RIGHT_END = 5.6    # beyond it the slope is 1 to within 4e-7
RIGHT_DEGREES = (8, 7)
LEFT_DEGREE = 7
TAYLOR_RADIUS = 0.125
NEAR = 0.01        # |x - x*| below this: one last place of a float y hides up to 5e-5 of d
NEAR_BOUND, FAR_BOUND = 6e-5, 1.1e-6
REGIONS = {"x < -3": (-8, -3), "-3 .. x* - .01": (-3, -NEAR), "|x - x*| < .01": (-NEAR, NEAR),
           "x* + .01 .. 1": (NEAR, 1), "1 .. 2.5": (1, 2.5), "x > 2.5": (2.5, 8)}


def exp(r):
    return mpmath.exp(r)


def mills(v):
    t = (1 / mpmath.mpf(v) - 1) / mpmath.mpf("0.3")
    return mpmath.erfc(t / mpmath.sqrt(2)) / 2 * mpmath.exp(t * t / 2)


class Exact:
    """GELU in its exact form: mpmath and, with names in `double`, float64."""
    name = "GeluExact"

    @staticmethod
    def value(x):
        return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2

    @staticmethod
    def slope(x):
        return mpmath.erfc(-x / mpmath.sqrt(2)) / 2 + x * mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)

    @staticmethod
    def double(x):
        phi = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        upper = np.array([math.erfc(-v / math.sqrt(2)) for v in x]) / 2
        return x * upper, upper + x * phi


class Tanh:
    """GELU in its tanh form."""
    name = "GeluTanh"
    scale, cubic = 2 * mpmath.sqrt(2 / mpmath.pi), mpmath.mpf("0.044715")

    @classmethod
    def value(cls, x):
        return x / (1 + mpmath.exp(-cls.scale * (x + cls.cubic * x**3)))

    @classmethod
    def slope(cls, x):
        decay = mpmath.exp(-cls.scale * (x + cls.cubic * x**3))
        sigmoid = 1 / (1 + decay)
        return sigmoid + x * cls.scale * (1 + 3 * cls.cubic * x * x) * sigmoid * sigmoid * decay

    @classmethod
    def double(cls, x):
        scale, cubic = float(cls.scale), float(cls.cubic)
        decay = np.exp(-scale * (x + cubic * x**3))
        sigmoid = 1 / (1 + decay)
        return x * sigmoid, sigmoid + x * scale * (1 + 3 * cubic * x * x) * sigmoid * sigmoid * decay


def chebyshev_grid(low, high, count):
    angles = np.pi * (np.arange(count) + 0.5) / count
    return np.sort(0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles))


def remez(function, low, high, degree, points=4000):
    """Coefficients c[0] + c[1] x + ... of least largest relative error, and that error."""
    x = chebyshev_grid(low, high, points)
    y = np.array([float(function(mpmath.mpf(float(v)))) for v in x])
    reference = np.linspace(0, points - 1, degree + 2).round().astype(int)
    for _ in range(60):
        xr, yr = x[reference], y[reference]
        signs = (-1.0) ** np.arange(degree + 2)
        system = np.column_stack([np.vander(xr, degree + 1, increasing=True) / yr[:, None], signs])
        solution = np.linalg.solve(system, np.ones(degree + 2))
        error = np.polyval(solution[degree::-1], x) / y - 1
        peak = np.argmax(np.abs(error))
        if np.abs(error[peak]) <= 1.0005 * abs(solution[-1]):
            break
        # One extremum between neighbouring sign changes; keep the degree + 2 largest that still alternate.
        edges = np.flatnonzero(np.diff(np.sign(error))) + 1
        extrema = [part[np.argmax(np.abs(error[part]))] for part in np.split(np.arange(points), edges)]
        while len(extrema) > degree + 2:
            drop = 0 if abs(error[extrema[0]]) < abs(error[extrema[-1]]) else -1
            extrema.pop(drop)
        reference = np.array(extrema)
    return solution[:degree + 1], float(np.abs(error).max())


def lawson(t, target, weight, top, bottom, rounds=150):
    """P of degree `top` and Q of degree `bottom`, Q[0] = 1, that nearly minimise max |weight (P/Q - target)|, and that error.

    Each round solves the problem made linear by the last Q (Sanathanan and Koerner 1963) and moves weight to where the error is
    (Lawson 1961).
    """
    powers = np.vander(t, max(top, bottom) + 1, increasing=True)
    system = np.column_stack([powers[:, :top + 1], -target[:, None] * powers[:, 1:bottom + 1]])
    emphasis, q, best = np.ones_like(t), np.ones_like(t), (np.inf, None, None)
    for _ in range(rounds):
        rows = weight * np.sqrt(emphasis) / np.abs(q)
        columns = np.abs(system * rows[:, None]).max(axis=0)
        solution = np.linalg.lstsq(system * rows[:, None] / columns, target * rows, rcond=None)[0] / columns
        p, q_coefficients = solution[:top + 1], np.concatenate([[1.0], solution[top + 1:]])
        q = np.polyval(q_coefficients[::-1], t)
        error = np.abs(weight * (np.polyval(p[::-1], t) / q - target))
        if q.min() > 0 and error.max() < best[0]:
            best = (float(error.max()), p, q_coefficients)
        emphasis = np.maximum(emphasis * error / (emphasis * error).max(), 1e-12)
    return best


def float32(value):
    return np.asarray(value, dtype=np.float64).astype(np.float32)


def fma(a, b, c):  # float64 holds the product of two float32 exactly
    return float32(np.float64(a) * b + c)


def horner(coefficients, x):
    value = np.full_like(x, np.float32(coefficients[-1]))
    for c in coefficients[-2::-1]:
        value = fma(value, x, np.float64(np.float32(c)))
    return value


def float32_error(coefficients, function, low, high):
    """Largest relative error of float32 Horner evaluation on points between those of the fit."""
    x = np.linspace(low, high, 20011).astype(np.float32)
    exact = np.array([float(function(mpmath.mpf(float(v)))) for v in x])
    return float(np.abs(horner(coefficients, x) / exact - 1).max())


def two_floats(number):
    high = np.float32(float(number))
    return high, np.float32(float(number - mpmath.mpf(float(high))))


class Inverse:
    """The slope of one form from its output: coefficients, and their evaluation as in gelu_inverse.h."""

    def __init__(self, form):
        self.form = form
        self.x_min = mpmath.findroot(form.slope, mpmath.mpf("-0.752"))
        self.y_min = form.value(self.x_min)
        self.x_high, self.x_low = two_floats(self.x_min)
        self.y_high, self.y_low = two_floats(self.y_min)
        self.first_right = self.x_high if mpmath.mpf(float(self.x_high)) >= self.x_min else np.nextafter(
            self.x_high, np.float32(0))
        self.s_zero = self.root(np.float32([0]))[0]  # as it is computed: then the slope at y = 0 is exactly 0
        self.taylor = [float(c) for c in mpmath.taylor(form.value, self.x_min, 7)]
        self.fit_right()
        self.fit_left()

    def exact_root(self, x):
        return mpmath.sqrt(max(self.form.value(x) - self.y_min, mpmath.mpf(0)))

    def points(self, coordinate, near_x, far_x, count=1200):
        """x in (near_x, far_x) at which `coordinate`, which is monotone there, makes a Chebyshev grid."""
        x = np.linspace(near_x, far_x, 4001)[1:-1]
        at = np.array([float(coordinate(mpmath.mpf(float(v)))) for v in x])
        order = np.argsort(at)
        return [mpmath.mpf(float(v)) for v in np.interp(chebyshev_grid(at.min(), at.max(), count), at[order], x[order])]

    def fit_right(self):
        x = self.points(self.exact_root, float(self.x_min), RIGHT_END + 0.01)
        s = [self.exact_root(v) for v in x]
        target = np.array([float(self.form.slope(v) / root) for v, root in zip(x, s)])
        s = np.array([float(root) for root in s])
        self.right_fit_error, self.p, self.q = lawson(s - RIGHT_SHIFT, target, s, *RIGHT_DEGREES)

    def fit_left(self):
        s_zero = mpmath.sqrt(-self.y_min)
        fourth_root = lambda x: mpmath.sqrt(mpmath.sqrt(s_zero - self.exact_root(x)))
        x = self.points(fourth_root, float(self.x_min), -12)
        w = [fourth_root(v) for v in x]
        weight = [self.exact_root(v) * root**2 for v, root in zip(x, w)]
        target = np.array([float(self.form.slope(v) / factor) for v, factor in zip(x, weight)])
        self.left_fit_error, self.t, _ = lawson(np.array([float(v) for v in w]), target,
                                                np.array([float(v) for v in weight]), LEFT_DEGREE, 0)

    def root(self, y):
        above = float32(float32(np.float64(y) - self.y_high) - np.float64(self.y_low))
        return float32(np.sqrt(np.float64(np.maximum(above, 0))))

    def slope_from_output(self, y, right):
        s = self.root(y)
        t = float32(s - np.float64(np.float32(RIGHT_SHIFT)))
        ratio = float32(np.float64(float32(np.float64(s) * horner(self.p, t))) / horner(self.q, t))
        v = float32(np.sqrt(np.float64(np.maximum(float32(np.float64(self.s_zero) - s), 0))))
        w = float32(np.sqrt(np.float64(v)))
        left = float32(np.float64(float32(np.float64(s) * v)) * horner(self.t, w))
        return np.where(right, np.where(y > RIGHT_END, np.float32(1), ratio), left)

    def region_errors(self, count=200_000):
        """Largest error of the slope in each region, from the correctly rounded output."""
        errors = {}
        for region, (low, high) in REGIONS.items():
            low, high = (float(self.x_min) + v if abs(v) == NEAR else v for v in (low, high))
            x = float32(np.linspace(low, high, count))
            y, slope = self.form.double(np.float64(x))
            errors[region] = float(np.abs(self.slope_from_output(float32(y), x >= self.first_right) - slope).max())
        return errors

    def taylor_error(self):
        """Largest error of the float32 output near the minimum, in its last places."""
        x = float32(np.linspace(float(self.x_min) - TAYLOR_RADIUS, float(self.x_min) + TAYLOR_RADIUS, 200_000))
        q = float32(float32(np.float64(x) - self.x_high) - np.float64(self.x_low))
        square = float32(np.float64(q) * q)
        y = float32(np.float64(fma(square, horner(self.taylor[2:], q), np.float64(self.y_low))) + self.y_high)
        return float((np.abs(y - self.form.double(np.float64(x))[0]) / 2.0**-26).max())


FITS = {
    "Exp": (exp, -float(mpmath.log(2)) / 2 * 1.0001, float(mpmath.log(2)) / 2 * 1.0001, 6),
    "Mills": (mills, 1 / (1 + 0.3 * 14), 1.0, 8),
}


def declaration(name, value, indent=""):
    number = repr(np.float32(value)).replace("np.float32(", "").rstrip(")")
    return f"{indent}{'static' if indent else 'inline'} constexpr float {name} = {number}f;"


def inverse_lines(form):
    """Checks one form and returns its lines of the header."""
    inverse = Inverse(form)
    errors, taylor_error = inverse.region_errors(), inverse.taylor_error()
    print(f"{form.name}: fit right {inverse.right_fit_error:.2e}, left {inverse.left_fit_error:.2e}; output near the minimum "
          f"{taylor_error:.2f} last places; slope from output in float32:")
    for region, error in errors.items():
        print(f"  {region:16} {error:.2e}")
        if error > (NEAR_BOUND if "|" in region else FAR_BOUND):
            sys.exit(f"{form.name}, {region}: the fit is not good enough")
    if taylor_error > 0.6:
        sys.exit(f"{form.name}: the output near the minimum is not good enough")
    lines = [f"// The inverse of {form.name}: fit right {inverse.right_fit_error:.2e}, left {inverse.left_fit_error:.2e}, absolute. "
             "Evaluated in float32 from a", "// correctly rounded output: "
             + "; ".join(f"{error:.2e} for {region}" for region, error in list(errors.items())[:3]) + ";",
             "// " + "; ".join(f"{error:.2e} for {region}" for region, error in list(errors.items())[3:])
             + f". Output near x*: {taylor_error:.2f} last places.",
             f"struct {form.name}Fit {{"]
    add = lambda name, value: lines.append(declaration(name, value, "  "))
    add("kFirstRight", inverse.first_right)
    lines.append(f"  static constexpr double kMinX = {mpmath.nstr(inverse.x_min, 20)};")
    for name, value in (("kMinXHigh", inverse.x_high), ("kMinXLow", inverse.x_low), ("kMinYHigh", inverse.y_high),
                        ("kMinYLow", inverse.y_low), ("kRootAtZero", inverse.s_zero), ("kRightShift", RIGHT_SHIFT),
                        ("kRightEnd", RIGHT_END), ("kTaylorRadius", TAYLOR_RADIUS)):
        add(name, value)
    for letter, coefficients, first in (("P", inverse.p, 0), ("Q", inverse.q, 0), ("T", inverse.t, 0),
                                        ("Taylor", inverse.taylor, 2)):
        for power in range(first, len(coefficients)):
            add(f"k{letter}{power}", coefficients[power])
    return lines + ["};", ""]


def main():
    lines = ["// Generated by scripts/fit_gelu.py --write; do not edit. Ascending powers; errors are the largest, for exp and mills",
             "// relative.", "#pragma once", "", "namespace tempo::layers::math {", ""]
    for name, (function, low, high, degree) in FITS.items():
        coefficients, fit_error = remez(function, low, high, degree)
        single_error = float32_error(coefficients, function, low, high)
        print(f"{name}: degree {degree}, fit {fit_error:.2e}, in float32 {single_error:.2e}")
        if single_error > 2.5e-7:
            sys.exit(f"{name}: the fit is not good enough")
        lines.append(f"// {function.__name__}: fit {fit_error:.2e}, evaluated in float32 {single_error:.2e}")
        lines += [declaration(f"k{name}{power}", c) for power, c in enumerate(coefficients)]
        lines.append("")
    for form in (Exact, Tanh):
        lines += inverse_lines(form)
    lines.append("}  // namespace tempo::layers::math")
    if "--write" in sys.argv[1:]:
        HEADER.write_text("\n".join(lines) + "\n")
        print(f"wrote {HEADER}")


if __name__ == "__main__":
    main()
