#!/usr/bin/env python3
"""Writes rotation.svg: a row with one outlier, before and after the rotation of chapters/06_fp8/step4_hadamard.cuh."""
import math
import random

from svg import Figure

D, OUTLIER, PLACE, SEED = 64, 16.0, 41, 2
LEFT, BAR, SCALE = 24, 6.6, 4.6  # left margin; width of an element; pixels per unit


def random_bits(seed, index):
    """Returns random bits as common/attention/random.h does."""
    mask = 2**64 - 1
    bits = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & mask
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & mask
    return bits ^ bits >> 31


def rotated(row):
    """Returns the row times diag(signs) H / sqrt(d)."""
    signed = [-x if random_bits(SEED, i // 8) >> 56 >> i % 8 & 1 else x for i, x in enumerate(row)]
    return [sum(x * (-1) ** bin(i & j).count("1") for i, x in enumerate(signed)) / math.sqrt(len(row)) for j in range(len(row))]


def panel(figure, middle, title, row, look, up, down):
    largest, length = max(map(abs, row)), math.sqrt(sum(x * x for x in row))
    figure.text(LEFT, middle - up * SCALE - 12, f"{title}: largest {largest:.1f}, length {length:.1f}", "small")
    figure.line([(LEFT, middle), (LEFT + D * BAR, middle)])
    for i, x in enumerate(row):
        at = LEFT + (i + 0.5) * BAR
        tall = look if abs(x) < 8 else "red"
        figure.parts.append(f'<path class="stroke {tall}" style="stroke-width:4" d="M{at:g} {middle:g} V{middle - x * SCALE:.2f}"/>')
    return middle + down * SCALE


generator = random.Random(4)
row = [generator.gauss(0, 1) for _ in range(D)]
row[PLACE] = OUTLIER
figure = Figure(472, 268, "Before the rotation one of 64 elements is 16 and the others are near 1. After it no element is much larger than the others, and "
                          "the row is as long as before.")
figure.text(LEFT, 28, "a row of 64 elements, one of them 16", "bold")
bottom = panel(figure, 66 + 16 * SCALE, "not rotated", row, "blue", 16, 3)
panel(figure, bottom + 44 + 6 * SCALE, "rotated", rotated(row), "green", 6, 6)
figure.write(__file__)
