#!/usr/bin/env python3
"""Writes kv_cache.svg, the still picture of the interactive figure: the keys that five tokens compute, without a cache and with it; and what that
figure reckons with, interactive/kv_cache_data.js: rates of the card from the newest results."""

from svg import Figure, write_data

from bench import results

TOKENS, CELL = 5, 26
DECODE = "decode/ch08/step6/bf16/d128/b16h32k8/n8192"
PREFILL = {"bf16": (5, 5), "e4m3": (6, 7)}  # the chapter and the step that reads prompts


def write_rates():
    measured = results.load(results.RESULTS / results.BOOK_GPU)
    rates = {"decode": {"name": DECODE, "tbps": round(measured.measured(DECODE).values["bytes_per_second"] / 1e12, 2)},
             "prefill": {dtype: {d: {"name": name, "tflops": round(measured.measured(name).values["FLOPS"] / 1e12), "kernel": f"chapter {chapter}'s step {step}"}
                                 for d in (64, 128, 256) for name in [f"forward/ch{chapter:02}/step{step}/{dtype}/d{d}/causal/n16384"]}
                         for dtype, (chapter, step) in PREFILL.items()}}
    write_data(__file__, "Rates of an H200, from bench/results", rates)


def triangle(figure, x, title, look_of, total):
    figure.text(x, 34, title, "bold")
    for token in range(TOKENS):
        figure.text(x + 12, 72 + token * CELL, str(token + 1), "small soft", "middle")
        for key in range(token + 1):
            figure.box(x + 26 + key * CELL, 54 + token * CELL, CELL - 2, CELL - 2, look_of(token, key))
    figure.text(x, 54 + TOKENS * CELL + 24, total)


write_rates()
figure = Figure(420, 256, "Five tokens without a cache compute 15 keys, every one anew for each token; with a cache they compute 5 and read the others.")
triangle(figure, 20, "without a cache", lambda token, key: "amber", f"{TOKENS * (TOKENS + 1) // 2} keys computed")
triangle(figure, 230, "with the cache", lambda token, key: "blue" if key == token else "", f"{TOKENS} keys computed")
figure.text(20, 238, "A row is a token that is written, a box a key that it needs.", "small soft")
figure.write(__file__)
