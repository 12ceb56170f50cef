#!/usr/bin/env python3
"""Measures the errors of our FP8 attention and of the peers in long rows, in one process. No times.

    long_rows.py [--seqlen 1k,4k,16k,64k,128k] [--head-dim 64,128,256] [--step linear_exp,...] [--resume] [--seconds S] [--out FILE]

One head and 64 queries; Q and K are normally distributed. V is 1 everywhere (`ones`), or normally distributed around 1/2 (`halves`). All contestants
read the same e4m3 tensors with a scale of 1, and errors are against FP64 attention on these: `relative_rms` is the RMS error of O over the RMS
of O, `left` is the fraction of O that is left, 1 if nothing is lost. cuDNN writes O in e4m3, the others in BF16.
"""

import argparse
import math
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/long_rows.py finds the packages

from bench import packages, peers, race
from bench.names import Name
from bench.race import SEED, whole_numbers
from bench.structs import Shape

QUERIES, PEERS = 64, ("cudnn_frontend", "fa3")
torch: Any = None  # imported after the options are checked


def values_of(kind, keys, head_dim):
    shape = (1, 1, keys, head_dim)
    return torch.ones(shape, device="cuda") if kind == "ones" else torch.randn(shape, device="cuda") + 0.5


def cell(file, options, library, kind, head_dim, keys):
    """Returns the errors of all contestants, as entries of a result file."""
    torch.manual_seed(SEED)
    q, k = (torch.randn(1, 1, rows, head_dim, device="cuda") for rows in (QUERIES, keys))
    encoded = tuple(tensor.to(torch.float8_e4m3fn) for tensor in (q, k, values_of(kind, keys, head_dim)))
    shape = Shape(1, 1, 1, QUERIES, keys, head_dim, 0, peers.DTYPES["e4m3"], 1 / math.sqrt(head_dim))
    problem = peers.Problem(shape, "e4m3", *(tensor.bfloat16() for tensor in encoded), encoded)
    exact = peers.plain(*(tensor[0, 0].double() for tensor in encoded), torch.ones(QUERIES, keys, device="cuda", dtype=torch.bool), shape.scale)
    entries = []
    ours = [peers.ours(library, 6, step, problem) for step in library.slugs(6, options.step)]
    for contestant in file.lacks([*ours, *(peers.peer(who, problem) for who in PEERS)]):
        name = str(Name(f"long/{kind}", contestant.who, "e4m3", head_dim, "full", keys))
        found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ms",
                 "label": contestant.label}
        if not contestant.skipped:
            try:
                o = contestant.run()[0, 0].double()
                found |= {"relative_rms": ((o - exact).norm() / exact.norm()).item(), "left": ((o * exact).sum() / exact.square().sum()).item()}
            except Exception as error:  # packages raise all kinds of exceptions
                if contestant.who.startswith("ch"):
                    raise race.Wrong(f"{name}: {error}") from None
                contestant.skipped = (str(error).splitlines() or [type(error).__name__])[0]
        if contestant.skipped:
            found |= {"error_occurred": True, "error_message": contestant.skipped, "label": "skipped"}
        said = f"skipped: {contestant.skipped}" if contestant.skipped else f"error {found['relative_rms']:.4f}, {found['left']:.4f} of O is left"
        print(f"{name:50}", said, flush=True)
        entries.append(found)
    return entries


def run(options, library):
    file = race.File(options, library)
    for kind in ("ones", "halves"):
        for head_dim in options.head_dim:
            for keys in options.seqlen:
                if (name := f"{kind}/d{head_dim}/n{keys}") not in file.done:
                    begun = file.begin(name)
                    file.add(name, cell(file, options, library, kind, head_dim, keys), begun)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=whole_numbers, default=[1024, 4096, 16384, 65536, 131072])
    parser.add_argument("--head-dim", type=whole_numbers, default=[64, 128, 256])
    parser.add_argument("--step", type=lambda text: text.split(","), default=["transpose_once", "linear_exp", "promoted_sums"])
    race.add_options(parser)
    return parser.parse_args()


def main():
    global torch  # noqa: PLW0603
    options = parse()
    torch = peers.torch = packages.torch = race.pytorch("long_rows.py")
    return 77 if torch is None else race.measure("long_rows.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
