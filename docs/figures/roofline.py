#!/usr/bin/env python3
"""Writes roofline.svg: what three GPUs can reach at an arithmetic intensity. The sources stand in docs/pages/roofline.md."""
from math import log10

from svg import Figure

figure = Figure(560, 396, "The roofline of three GPUs on logarithmic axes, with softmax, naive attention and fused attention.")
left, right, top, bottom = 62, 540, 26, 340
x_range, y_range = (0.5, 5000), (1, 2000)

def x(intensity):
    return left + (right - left) * log10(intensity / x_range[0]) / log10(x_range[1] / x_range[0])

def y(tflops):
    return bottom - (bottom - top) * log10(tflops / y_range[0]) / log10(y_range[1] / y_range[0])

for value in (1, 10, 100, 1000):
    figure.line([(left, y(value)), (right, y(value))], dashed=True)
    figure.text(left - 8, y(value) + 5, str(value), "small soft", "end")
    figure.line([(x(value), bottom), (x(value), bottom + 5)])
    figure.text(x(value), bottom + 21, str(value), "small soft", "middle")
figure.line([(left, top), (left, bottom), (right, bottom)])
figure.text(left + 8, top + 4, "TFLOP/s", "small soft")
figure.text(right, bottom + 42, "FLOP a byte of device memory", "small soft", "end")

for peak, bandwidth, look in ((312, 2.0, "green"), (989, 3.35, "amber"), (989, 4.8, "blue")):
    balance = peak / bandwidth
    figure.line([(x(x_range[0]), y(x_range[0] * bandwidth)), (x(balance), y(peak)), (right, y(peak))], look)
    figure.line([(x(balance), y(peak)), (x(balance), bottom)], look, dashed=True)
figure.text(right, y(989) - 9, "H100, H200: 989", "small", "end")
figure.text(right, y(312) - 9, "A100: 312", "small green", "end")
for name, intensity, shift, anchor in (("softmax", 1, (14, -17), "end"), ("naive attention, d = 128", 128 / 3, (-10, -10), "end"),
                                     ("fused, N = 4096", 2048, (0, 22), "middle")):
    reached = min(989, 4.8 * intensity)
    figure.dot(x(intensity), y(reached), "red")
    figure.text(x(intensity) + shift[0], y(reached) + shift[1], name, "small red", anchor)
legend = (("H200: 206", "blue"), ("H100: 295", "amber"), ("A100: 156", "green"))
figure.text(x(9), y(5), "balance point", "small soft")
for i, (name, look) in enumerate(legend):
    figure.text(x(9), y(5) + 19 * (i + 1), name, f"small {look}")
figure.write(__file__)
