#!/usr/bin/env python3
"""Writes multiprocessor.svg: what a CPU core and a GPU's multiprocessor spend their area on."""
from svg import Figure

CORE, SM = 16, 204  # x where each half begins


def core(figure):
    figure.text(CORE, 30, "A CPU core", "bold")
    for y, height, look, lines in ((44, 104, "amber", ("guesses branches,", "reorders", "instructions")),
                                   (154, 116, "amber", ("caches, 1 to 2 MB", "for this core")),
                                   (276, 40, "blue", ("registers",)),
                                   (322, 40, "green", ("arithmetic",))):
        figure.box(CORE, y, 164, height, look)
        for i, line in enumerate(lines):
            figure.text(CORE + 82, y + height / 2 + 5 + 18 * (i - (len(lines) - 1) / 2), line, "small", "middle")
    figure.lines(CORE, 384, ("one thread,", "as fast as possible"), "small soft", step=18)


def quarter(figure, x, y):
    figure.box(x, y, 154, 138, "")
    for top, height, look, lines in ((8, 22, "amber", ("scheduler",)), (34, 26, "blue", ("registers, 64 KB",)),
                                     (64, 42, "green", ("32 CUDA cores,", "4 for exponentials")), (110, 22, "green", ("tensor core",))):
        figure.box(x + 8, y + top, 138, height, look)
        for i, line in enumerate(lines):
            figure.text(x + 77, y + top + height / 2 + 5 + 18 * (i - (len(lines) - 1) / 2), line, "small", "middle")


figure = Figure(540, 418, "A CPU core spends its area on making one thread fast; a multiprocessor has four schedulers, each with registers for "
                          "hundreds of threads, CUDA cores and a tensor core, above one shared memory.")
core(figure)
figure.text(SM, 30, "A multiprocessor, one of 132", "bold")
for x in (SM, SM + 166):
    for y in (44, 190):
        quarter(figure, x, y)
figure.box(SM, 336, 320, 26, "blue", "shared memory and L1 cache, 256 KB")
figure.lines(SM, 384, ("up to 2048 threads, 64 warps:", "each slow, together fast"), "small soft", step=18)
figure.write(__file__)
