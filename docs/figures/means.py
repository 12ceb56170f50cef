#!/usr/bin/env python3
"""Writes means.svg: how much of a long sum of e4m3 products the tensor cores keep if the values have a nonzero mean,
computed with the algorithm of common/simulator/tensor_core.h."""
import math
import random

from svg import Figure

BITS, DEPTH, COLUMNS = 13, 32, 12  # fraction bits kept; products per instruction; columns averaged
LENGTHS = [2**power for power in range(8, 17)]
LEFT, RIGHT, TOP, BOTTOM = 62, 420, 50, 220


def cut(value, exponent):
    """Returns `value` truncated to multiples of 2^(exponent - BITS)."""
    return math.ldexp(math.trunc(math.ldexp(value, BITS - exponent)), exponent - BITS)


def exponent_of(value):
    return math.frexp(value)[1] - 1 if value else -1000


def e4m3(value):
    """Rounds to three bits of mantissa. Subnormal values are rare enough here to be ignored."""
    exponent = max(exponent_of(value), -6)
    return math.ldexp(round(math.ldexp(value, 3 - exponent)), exponent - 3)


def left_of(values, weights, given_back):
    """Returns, for each of LENGTHS, the tensor cores' sum divided by the exact one. `given_back` is what was subtracted
    from each value."""
    total = exact = 0.0
    sizes = []
    for first in range(0, len(values), DEPTH):
        products = [weight * value for weight, value in zip(weights[first:first + DEPTH], values[first:first + DEPTH])]
        top = max(map(exponent_of, [*products, total]))
        total = sum(cut(term, top) for term in [*products, total])
        total = cut(total, exponent_of(total))
        exact += sum(products)
        if first + DEPTH in LENGTHS:
            of_weights = given_back * sum(weights[:first + DEPTH])
            sizes.append((total + of_weights) / (exact + of_weights))
    return sizes


def curve(mean, taken):
    """Returns the mean over a few columns of values N(mean, 1), after `taken` is subtracted from them."""
    dice = random.Random(1)
    curves = []
    for _ in range(COLUMNS):
        weights = [e4m3(64 * math.exp(dice.gauss(0, 1) - 3.5)) for _ in range(LENGTHS[-1])]
        values = [e4m3(64 * (dice.gauss(0, 1) + mean - taken)) for _ in weights]
        curves.append(left_of(values, weights, 64 * taken))
    return [sum(point) / COLUMNS for point in zip(*curves)]


figure = Figure(560, 262, "What is left of a sum of e4m3 products, by the number of keys. With values of mean 1 it falls to less than "
                          "two thirds at 64k, with mean 1/4 to four fifths, and without their mean all of it is left.")

def place(i, share):
    return LEFT + (RIGHT - LEFT) * i / (len(LENGTHS) - 1), BOTTOM - (BOTTOM - TOP) * (share - 0.5) / 0.5

figure.text(16, 26, "What is left of a long sum", "bold")
for percent in range(50, 101, 10):
    y = place(0, percent / 100)[1]
    figure.line([(LEFT, y), (RIGHT, y)], "soft")
    figure.text(LEFT - 8, y + 4, f"{percent} %", "small soft", "end")
for i in range(0, len(LENGTHS), 2):
    figure.text(place(i, 0)[0], BOTTOM + 18, f"{LENGTHS[i] // 1024}k" if LENGTHS[i] >= 1024 else str(LENGTHS[i]), "small soft", "middle")
figure.text((LEFT + RIGHT) / 2, BOTTOM + 36, "keys", "small", "middle")
for mean, taken, words in ((1, 0, "values N(1, 1)"), (0.25, 0, "values N(1/4, 1)"), (1, 1, "N(1, 1), mean out")):
    shares = curve(mean, taken)
    points = [place(i, share) for i, share in enumerate(shares)]
    figure.line(points, "red" if not taken else "green")
    figure.text(RIGHT + 8, points[-1][1] + 4, words, "small")
figure.write(__file__)
