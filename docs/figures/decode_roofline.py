#!/usr/bin/env python3
"""Writes decode_roofline.svg: decoding and prefill under the roofline of an H200. It shows limits, not
measurements."""
from svg import BOTTOM, LEAST_INTENSITY, RIGHT, Figure, roofline_axes

PEAK, BANDWIDTH = 989, 4.8  # TFLOP/s and TB/s of the data sheet


figure = Figure(560, 400,
                "The roofline of an H200: decoding is far down the slope, latent attention with 128 heads at the ridge, prefill under the roof.")
x, y = roofline_axes(figure)

ridge = PEAK / BANDWIDTH
figure.line([(x(LEAST_INTENSITY), y(LEAST_INTENSITY * BANDWIDTH)), (x(ridge), y(PEAK)), (RIGHT, y(PEAK))], "blue")
figure.line([(x(ridge), y(PEAK)), (x(ridge), BOTTOM)], "blue", dashed=True)
figure.text(x(ridge) + 6, BOTTOM - 10, f"ridge: {ridge:.0f}", "small blue")
points = (("a key head per query head", 1, "red", (12, 6)), ("groups of 4", 4, "red", (12, 6)),
          ("groups of 8", 8, "red", (12, 6)), ("latent, 16 heads", 16 * 1088 / 576, "amber", (-12, -4)),
          ("latent, 128 heads", 128 * 1088 / 576, "amber", (-16, -10)), ("prefill, N = 4096", 2048, "green", (0, 22)))
for name, intensity, look, (dx, dy) in points:
    at = y(min(PEAK, BANDWIDTH * intensity))
    figure.dot(x(intensity), at, look)
    anchor = "start" if dx > 0 else "end" if dx < 0 else "middle"
    figure.text(x(intensity) + dx, at + dy, name, f"small {look}", anchor)
figure.write(__file__)
