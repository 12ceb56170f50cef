#!/usr/bin/env python3
"""Writes blackwell_tensor_memory.svg: what FlashAttention-4 keeps in tensor memory."""
from svg import Figure

figure = Figure(540, 330, "The 512 columns of tensor memory: scores of two tiles of queries, overwritten by the probabilities, and their two outputs. "
                          "Softmax warps read scores and write probabilities, correction warps scale the outputs, one warp issues all products.")
figure.text(20, 30, "tensor memory: 128 rows × 512 columns of 4 bytes", "small soft")
for i, (name, inside, look) in enumerate((("scores 0", "P 0", "amber"), ("scores 1", "P 1", "amber"), ("output 0", "", "green"), ("output 1", "", "green"))):
    x = 20 + i * 125
    figure.box(x, 44, 123, 92, look)
    figure.text(x + 10, 66, name, "bold")
    figure.text(x + 10, 84, f"columns {128 * i} on", "small")
    if inside:
        figure.box(x + 61, 94, 58, 36, "", inside)
figure.arrow(82, 142, 82, 186, "amber")
figure.arrow(207, 142, 207, 186, "amber")
figure.arrow(394, 142, 394, 186, "green")
for x, y, width, look, warps, does in ((20, 190, 123, "amber", "4 warps", "softmax of tile 0"), (145, 190, 123, "amber", "4 warps", "softmax of tile 1"),
                                       (270, 190, 248, "green", "4 warps", "correction: both outputs, rarely"),
                                       (20, 254, 248, "blue", "1 warp", "issues all products of both tiles"),
                                       (270, 254, 123, "", "1 warp", "loads by TMA"), (395, 254, 123, "", "1 warp", "stores by TMA")):
    figure.box(x, y, width, 56, look)
    figure.text(x + 10, y + 22, warps, "bold")
    figure.text(x + 10, y + 42, does, "small")
figure.write(__file__)
