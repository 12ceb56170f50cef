#!/usr/bin/env python3
"""Runs a chapter's program in random orders of the simulator: random_orders_test.py PROGRAM [--seeds N] [--first S].

A seed determines the order of the warps and when each asynchronous copy completes; a single OS thread makes every run repeatable. Each shape has
batches of uneven length, and one block more than the simulator's four multiprocessors, so that one of them runs a second block. A run fails on a lapped
barrier, a deadlock, a race or a wrong row. CTest runs 4 seeds of each shape; set FLASHBOOK_RANDOM_SEEDS and FLASHBOOK_RANDOM_FIRST, or the
options, to change that."""
import argparse
import os
import subprocess
import sys
from pathlib import Path

SECONDS = 120  # a run takes about half a second

FORWARD = ["--batch 5 --heads 1 --seqlen 33 --seqlen-k 70", "--batch 1 --heads 3 --kv-heads 1 --seqlen 65 --seqlen-k 97 --causal"]
# With tiles of 128 queries and 128 keys, rings wrap around, and a persistent block gets a second tile.
HOPPER = ["--batch 5 --heads 1 --seqlen 65 --seqlen-k 300", "--batch 1 --heads 3 --kv-heads 1 --seqlen 150 --seqlen-k 260 --causal"]
SHAPES = {
    "01": FORWARD,
    "02": FORWARD,
    "03": FORWARD,
    "04": FORWARD,
    "05": HOPPER,
    "06": HOPPER,
    "07": ["--batch 5 --heads 1 --seqlen 33 --seqlen-k 70", "--batch 1 --heads 2 --kv-heads 1 --seqlen 97 --seqlen-k 130 --causal"],
    "08": ["--batch 5 --heads 2 --kv-heads 1 --seqlen 1 --seqlen-k 300", "--lengths 300,0,1,200,65 --heads 4 --kv-heads 2 --page-rows 16 --seqlen 2 --causal",
           "--lengths 200,0,65 --heads 5 --kv-heads 1 --head-dim 576 --seqlen 1"],
    "09": ["--batch 5 --heads 1 --seqlen 65 --seqlen-k 65 --window 20 --step mask_functions", "--lengths 130,0,1,77 --heads 2 --kv-heads 1 --causal",
           "--lengths 130,0,1,77 --heads 2 --kv-heads 1 --causal --step backward"],
}


def attempt(program: str, words: list[str], seed: int) -> str | None:
    """Returns the failure, if any."""
    environment = os.environ | {"FLASHBOOK_SIM_THREADS": "1", "FLASHBOOK_SIM_ASYNC": "random", "FLASHBOOK_SIM_SEED": str(seed)}
    try:
        run = subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"it did not end within {SECONDS} s"
    return None if run.returncode == 0 else f"exit code {run.returncode}\n{run.stdout}{run.stderr}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("FLASHBOOK_RANDOM_SEEDS", "4")))
    parser.add_argument("--first", type=int, default=int(os.environ.get("FLASHBOOK_RANDOM_FIRST", "1")), help="the first seed; 0 runs warps in the order of their numbers")
    arguments = parser.parse_args()
    failed = 0
    shapes = SHAPES.get(Path(arguments.program).name[:2], FORWARD)
    for shape in shapes:
        words = shape.split() + ["--reps", "1"] + ([] if "--head-dim" in shape else ["--head-dim", "64"])
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            if wrong := attempt(arguments.program, words, seed):
                failed += 1
                print(f"FLASHBOOK_SIM_THREADS=1 FLASHBOOK_SIM_ASYNC=random FLASHBOOK_SIM_SEED={seed} {arguments.program} {' '.join(words)}\n{wrong}\n", file=sys.stderr)
    print(f"{arguments.seeds * len(shapes)} runs, {failed} of them wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
