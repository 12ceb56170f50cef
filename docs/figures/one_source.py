#!/usr/bin/env python3
"""Writes one_source.svg: the two ways to compile one kernel file."""
from svg import Figure

figure = Figure(540, 306, "One kernel file goes through nvcc to a GPU, and through g++ or clang++ and the simulator to a CPU.")
figure.box(190, 20, 160, 46, "amber", "kernel.cuh", "code")
for middle, compiler in ((130, "nvcc"), (410, "g++, clang++")):
    figure.line([(270, 66), (270, 84), (middle, 84)])
    figure.arrow(middle, 84, middle, 108)
    figure.box(middle - 70, 108, 140, 36, "", compiler, "code")
    figure.arrow(middle, 144, middle, 168)
figure.box(30, 168, 200, 118, "blue")
figure.text(130, 192, "GPU", "bold", "middle")
for i, line in enumerate(("warps in parallel", "real time, real registers", "bounds of the hardware")):
    figure.text(130, 218 + 22 * i, line, "small", "middle")
figure.box(310, 168, 200, 118, "green")
figure.text(410, 192, "simulator", "bold", "middle")
for i, line in enumerate(("a fiber for every thread", "one after another", "rules of the machine checked")):
    figure.text(410, 218 + 22 * i, line, "small", "middle")
figure.write(__file__)
