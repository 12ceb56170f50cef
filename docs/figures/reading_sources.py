#!/usr/bin/env python3
"""Writes reading_sources.svg: this book's files of chapter 5 and their counterparts in FlashAttention-3 and
FlashAttention-4."""
from svg import Figure

ROWS = (("which tile, which kernel", "host/, launch.h", "tile_size.h, launch_template.h", "interface.py"),
        ("hand out tiles of queries", "tile_scheduler.h", "tile_scheduler.hpp", "tile_scheduler.py"),
        ("a block and its roles", "step5_persistent.cuh", "flash_fwd_kernel_sm90.h", "flash_fwd_sm90.py"),
        ("what a producer does", "step5_persistent.cuh", "load in mainloop_fwd_sm90...", "load in the same"),
        ("what a consumer does", "step5_persistent.cuh", "mma in the same", "mma in the same"),
        ("stages and phases", "pipeline.h", "CUTLASS's pipeline", "pipeline.py"),
        ("whose turn it is", "pingpong.h", "named_barrier.hpp", "named_barrier.py"),
        ("softmax", "softmax.h", "softmax.h", "softmax.py"),
        ("what is hidden", "mask.h", "mask.h, block.h", "mask.py, block_info.py"),
        ("the output", "epilogue.h", "epilogue_fwd.hpp", "flash_fwd_sm90.py"))


figure = Figure(560, 60 + 50 * len(ROWS), "What chapter 5 does, and the files that do it: here, in FlashAttention-3 and in FlashAttention-4's Hopper kernels.")
for x, title, look in ((20, "chapter 5", "bold blue"), (186, "FlashAttention-3, hopper/", "bold amber"), (392, "-4, flash_attn/cute/", "bold green")):
    figure.text(x, 28, title, look)
for i, (does, *files) in enumerate(ROWS):
    y = 42 + 50 * i
    figure.text(20, y + 14, does, "small soft")
    for x, width, name, look in zip((20, 186, 392), (160, 200, 156), files, ("blue", "amber", "green")):
        figure.box(x, y + 19, width, 24, look)
        figure.text(x + 7, y + 36, name, "small")
figure.write(__file__)
