#!/usr/bin/env python3
"""Writes roofline_steps.svg: the measured rate of each step over its FLOPs per byte by its chapter's cost model, under the roofs that
chapter 0 measured."""
from svg import LEAST_INTENSITY, RIGHT, Figure, roofline_axes

from bench import results

LOOKS = {1: "red", 3: "amber", 4: "green", 5: "blue", 6: "ink"}
ROOFS = (("multiply_add", "F32"), ("warpgroup_product", "BF16"), ("e4m3", "FP8"))


measured = results.load(results.RESULTS / results.BOOK_GPU)
most = {kind: rate / 1e12 for kind, rate in results.limits(measured).items()}
figure = Figure(560, 440, "The measured steps under the roofline of an H200: naive attention left of the ridge, fused kernels far to its right.")
x, y = roofline_axes(figure)
for kind, name in ROOFS:
    figure.line([(x(LEAST_INTENSITY), y(LEAST_INTENSITY * most["copy"])), (x(most[kind] / most["copy"]), y(most[kind])), (RIGHT, y(most[kind]))])
    figure.text(x(1600), y(most[kind]) - 6, f"{name}: {most[kind]:.0f}", "small soft", "end")
figure.text(x(1) + 12, y(most["copy"]) + 8, f"memory: {most['copy']:.2f} TB/s", "small soft")
for (chapter, _), entry in measured.by_step(**results.LADDER).items():
    if not entry.skipped and "bytes_per_second" in entry.values:
        figure.dot(x(entry.values["FLOPS"] / entry.values["bytes_per_second"]), y(entry.values["FLOPS"] / 1e12), LOOKS[chapter])
for i, (chapter, look) in enumerate(LOOKS.items()):
    figure.dot(30 + 106 * i, 406, look)
    figure.text(40 + 106 * i, 411, f"chapter {chapter}", "small")
figure.text(25, 432, "H200, batch 4, 16 heads, N 4096, d 128, no mask. FP8's roof is twice BF16's.", "small soft")
figure.write(__file__)
