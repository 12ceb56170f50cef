#!/usr/bin/env python3
"""Writes decode_roofline.svg: where decoding and prefill lie under the roofline of an H200. Limits, nothing measured."""
from math import log10

from svg import Figure

PEAK, BANDWIDTH = 989, 4.8  # TFLOP/s, TB/s: the data sheet's


figure = Figure(560, 400,
                "The roofline of an H200: decoding lies far down the slope, latent attention of 128 heads at the ridge, prefill under the roof.")
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

ridge = PEAK / BANDWIDTH
figure.line([(x(x_range[0]), y(x_range[0] * BANDWIDTH)), (x(ridge), y(PEAK)), (right, y(PEAK))], "blue")
figure.line([(x(ridge), y(PEAK)), (x(ridge), bottom)], "blue", dashed=True)
figure.text(x(ridge) + 6, bottom - 10, f"ridge: {ridge:.0f}", "small blue")
points = (("a key head for each query head", 1, "red", (12, 6)), ("groups of 4", 4, "red", (12, 6)),
          ("groups of 8", 8, "red", (12, 6)), ("latent, 16 heads", 16 * 1088 / 576, "amber", (-12, -4)),
          ("latent, 128 heads", 128 * 1088 / 576, "amber", (-16, -10)), ("prefill, N = 4096", 2048, "green", (0, 22)))
for name, intensity, look, (dx, dy) in points:
    at = y(min(PEAK, BANDWIDTH * intensity))
    figure.dot(x(intensity), at, look)
    anchor = "start" if dx > 0 else "end" if dx < 0 else "middle"
    figure.text(x(intensity) + dx, at + dy, name, f"small {look}", anchor)
figure.write(__file__)
