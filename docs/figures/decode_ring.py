#!/usr/bin/env python3
"""Writes decode_ring.svg: the block of chapter 8's step 4, with a ring of three stages, one producer warp, and eight
consumer warps that each have their own keys."""
from svg import Figure

figure = Figure(560, 388,
                "A producer warp keeps three stages of 32 KB filled from device memory; eight consumer "
                "warps each take 16 keys of a tile and merge at the end.")
figure.text(16, 28, "Device memory", "bold")
figure.box(16, 40, 528, 28, "amber", "keys and values, read once, in order")
figure.box(16, 96, 118, 30, "green", "producer warp")
figure.text(16, 88, "requests every free stage", "small soft")
figure.text(16, 160, "Shared memory", "bold")
for stage, name in enumerate(("K 3", "V 3", "K 4")):
    x = 16 + stage * 180
    look = "blue" if stage < 1 else "amber"
    figure.box(x, 172, 168, 38, look, name)
    if stage >= 1:
        figure.arrow(x + 84, 68, x + 84, 170, "amber")
figure.text(16, 230, "in use", "small blue")
figure.text(196, 230, "in flight: two of three stages, 64 KB", "small amber")
figure.text(16, 268, "Eight consumer warps, each 16 keys of a tile of 128", "bold")
for warp in range(8):
    x = 16 + warp * 66
    figure.box(x, 280, 60, 44, "blue")
    figure.lines(x + 30, 298, (f"warp {warp}", "m, l, O"), "small", "middle", step=18)
figure.text(16, 350, "Each warp has its own maximum, sum and output: it waits for no other warp", "small")
figure.text(16, 370, "between two tiles. At the end the warps are merged by chapter 2's rule.", "small")
figure.write(__file__)
