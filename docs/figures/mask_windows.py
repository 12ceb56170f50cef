#!/usr/bin/env python3
"""Writes mask_windows.svg: chapter 9's rate over the width of a causal window, counting visible pairs or all pairs of
the executed tiles, from the newest results."""
import re

from svg import Figure

from bench import results

LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT = 52, 24, 64, 56, 480, 340
LENGTH, WINDOW = 8192, 1024  # tokens; the window that the word "window" names in results


def measured_widths(measured):
    """Returns (window in keys, TFLOP/s of visible pairs, TFLOP/s of multiplied pairs), narrowest first; the whole row
    is "causal"."""
    found = {}
    for name, entry in measured.newest.items():
        word = re.fullmatch(rf"masked/ch09/ranges/bf16/d128/(window(\d*)|causal)/n{LENGTH}", name)
        if word and not entry.skipped:
            keys = LENGTH if word[1] == "causal" else int(word[2] or WINDOW)
            found[keys] = (entry.values["FLOPS"] / 1e12, entry.values["FLOPS"] / 1e12 / entry.values["executed"])
    return [(keys, *rates) for keys, rates in sorted(found.items())]


def main():
    widths = measured_widths(results.load(results.RESULTS / results.BOOK_GPU))
    if not widths:
        return
    figure = Figure(WIDTH, HEIGHT, "; ".join(f"window of {keys}: {visible:.0f} TFLOP/s of visible pairs, {multiplied:.0f} of multiplied ones"
                                            for keys, visible, multiplied in widths))
    top = 100 * -(-max(multiplied for _, _, multiplied in widths) // 100)
    x = lambda i: LEFT + 16 + i * (WIDTH - LEFT - RIGHT - 32) / (len(widths) - 1)
    y = lambda rate: HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)
    figure.text(16, 26, "Step 3, TFLOP/s by the width of a causal window", "bold")
    for rate in range(0, int(top) + 1, 200):
        figure.line([(LEFT, y(rate)), (WIDTH - RIGHT, y(rate))])
        figure.text(LEFT - 8, y(rate) + 5, f"{rate}", "small soft", "end")
    for i, (keys, _, _) in enumerate(widths):
        figure.text(x(i), HEIGHT - BOTTOM + 22, "all" if keys == LENGTH else f"{keys}", "small soft", "middle")
    figure.text(LEFT, HEIGHT - 12, "keys before a query's own; 8192 tokens, d 128, bf16, H200", "small soft")
    for column, look, words, place in ((2, "amber", "of all pairs of executed tiles", 16), (1, "blue", "of visible pairs", 250)):
        figure.line([(x(i), y(row[column])) for i, row in enumerate(widths)], look)
        for i, row in enumerate(widths):
            figure.dot(x(i), y(row[column]), look)
        figure.dot(place + 6, 46, look)
        figure.text(place + 18, 51, words, "small soft")
    figure.write(__file__)


if __name__ == "__main__":
    main()
