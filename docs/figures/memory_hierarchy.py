#!/usr/bin/env python3
"""Writes memory_hierarchy.svg: the memories of a GPU, by size and bandwidth. docs/pages/memory_hierarchy.md cites the
sources."""
from svg import Figure

figure = Figure(540, 372, "The memories of an H200, each larger and slower than the one above it: registers, shared memory and L1, "
                          "L2, HBM.")
levels = [("Registers", "a thread's own", "33 MB", "", "green", 200),
          ("Shared memory and L1", "a block's, in its SM", "33 MB", "31 TB/s", "green", 270),
          ("L2 cache", "all SMs'", "60 MB", "12 TB/s", "amber", 340),
          ("HBM", "device memory", "141 GB", "4.8 TB/s", "blue", 410)]
figure.text(20, 30, "H200, whole chip", "bold")
figure.text(456, 30, "size", "small soft", "middle")
for i, (name, whose, size, bandwidth, look, width) in enumerate(levels):
    y = 46 + 80 * i
    figure.box(215 - width / 2, y, width, 52, look)
    figure.text(215, y + 22, name, "bold", "middle")
    figure.text(215, y + 41, whose, "small soft", "middle")
    figure.text(456, y + 31, size, "bold", "middle")
    if i:
        figure.arrow(215, y, 215, y - 28)
        figure.arrow(215, y - 28, 215, y)
        figure.text(227, y - 9, bandwidth, "small soft")
figure.write(__file__)
