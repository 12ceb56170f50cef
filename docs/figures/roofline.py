#!/usr/bin/env python3
"""Writes roofline.svg: what three GPUs can reach at an arithmetic intensity. docs/pages/roofline.md cites the sources."""
from svg import BOTTOM, LEAST_INTENSITY, RIGHT, Figure, roofline_axes

figure = Figure(560, 396, "The roofline of three GPUs on logarithmic axes, with softmax, naive attention and fused attention.")
x, y = roofline_axes(figure)

for peak, bandwidth, look in ((312, 2.0, "green"), (989, 3.35, "amber"), (989, 4.8, "blue")):
    balance = peak / bandwidth
    figure.line([(x(LEAST_INTENSITY), y(LEAST_INTENSITY * bandwidth)), (x(balance), y(peak)), (RIGHT, y(peak))], look)
    figure.line([(x(balance), y(peak)), (x(balance), BOTTOM)], look, dashed=True)
figure.text(RIGHT, y(989) - 9, "H100, H200: 989", "small", "end")
figure.text(RIGHT, y(312) - 9, "A100: 312", "small green", "end")
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
