#!/usr/bin/env python3
"""Times sparse latent attention, chapter 8's steps 11 and 12, as called from Python, interleaved with FlashMLA if its package is installed.

    lists.py [--only REGEX] [--peers flash_mla] [--rounds 5] [--resume] [--out FILE] [--library FILE]

The shapes are those of FlashMLA's tests for DeepSeek-V3.2: 2048 keys per token and 128 heads; a prompt of 4096 tokens, whose latents are in bf16, and
2 tokens for each of up to 128 sequences against a cache in e4m3. `of_product` is the fraction of a large matrix product's FLOPS. bench/race.py
documents the method. Some tokens of every contestant are checked against float64 first.
"""

import argparse
import dataclasses
import functools
import importlib
import importlib.util
import os
import pathlib
import re
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/lists.py finds the packages

from bench import peers, race, results
from bench.names import Name
from bench.race import SEED, Contestant

HEADS, COUNT, KEY_DIM, VALUE_DIM, PAGE_ROWS, CHECKED = 128, 2048, 576, 512, 64, 7
SCALE = KEY_DIM**-0.5
# (sequences, tokens per sequence, keys per sequence, whether keys are e4m3)
CELLS = {f"{'e4m3' if e4m3 else 'bf16'}/b{batch}t{tokens}/n{keys}": (batch, tokens, keys, e4m3)
         for batch, tokens, keys, e4m3 in (*((1, 4096, keys, False) for keys in (8192, 32768, 65536, 98304, 131072)),
                                           *((batch, 2, 32768, True) for batch in (2, 64, 74, 128)))}
torch: Any = None


@dataclasses.dataclass
class Problem:
    cell: str
    q: Any  # [tokens, heads, 576]
    kv: Any  # [rows, 576]
    indices: Any  # [tokens, 2048]
    cache: Any = None  # the same in e4m3, in pages
    encoded: tuple[()] = ()  # so that peers are not taken for kernels in another type

    def name(self, contestant):
        dtype, word, keys = self.cell.split("/")
        return str(Name("decode", contestant.who, dtype, KEY_DIM, f"{word}h{HEADS}lists", int(keys[1:])))

    @functools.cached_property
    def expected(self):
        """Returns the tokens that are checked, their O, and a bound for each."""
        tokens = torch.linspace(0, len(self.q) - 1, CHECKED, device="cuda").long()
        found = {}
        for kind in (torch.float64, torch.bfloat16):
            rows, q = self.kv[self.indices[tokens].long()].to(kind), self.q[tokens].to(kind)
            found[kind] = (q @ rows.transpose(1, 2) * SCALE).softmax(-1) @ rows[..., :VALUE_DIM]
        right, plain = found[torch.float64], found[torch.bfloat16].double()
        return tokens, right, 2 * (plain - right).abs().amax().item() + torch.finfo(torch.bfloat16).eps * right.abs().amax().item()


def largest_error(problem, o):
    tokens, right, bound = problem.expected
    return (o.reshape(len(problem.q), HEADS, VALUE_DIM)[tokens].double() - right).abs().amax().item(), bound


def make_problem(cell):
    torch.manual_seed(SEED)
    batch, tokens, keys, e4m3 = CELLS[cell]
    q, kv = (torch.randn(*size, KEY_DIM, device="cuda", dtype=torch.bfloat16) / 10 for size in ((batch * tokens, HEADS), (batch * keys,)))
    indices = torch.stack([torch.randperm(keys, device="cuda")[:COUNT] + token // tokens * keys for token in range(batch * tokens)]).int()
    problem = Problem(cell, q, kv, indices)
    if e4m3:
        groups = kv[:, :VALUE_DIM].float().unflatten(1, (4, 128))
        scales = torch.exp2(torch.ceil(torch.log2(groups.abs().amax(2) / 448)))
        encoded = (groups / scales[..., None]).to(torch.float8_e4m3fn)
        parts = encoded.flatten(1), scales, kv[:, VALUE_DIM:].contiguous()
        problem.cache = torch.cat([part.view(torch.uint8) for part in parts], 1).view(-1, PAGE_ROWS, 1, 656)
        problem.kv = torch.cat([(encoded.float() * scales[..., None]).flatten(1).bfloat16(), parts[2]], 1)
    return problem


def launch_of(module, problem):
    """Returns a launch by FlashMLA's functions, which `module` has."""
    if problem.cell.startswith("bf16"):
        kv, indices = problem.kv[:, None], problem.indices[:, None]
        return lambda: module.flash_mla_sparse_fwd(problem.q, kv, indices, SCALE)[0]
    batch, tokens, _, _ = CELLS[problem.cell]
    q, indices, metadata = problem.q.view(batch, tokens, HEADS, KEY_DIM), problem.indices.view(batch, tokens, COUNT), module.get_mla_metadata()[0]
    return lambda: module.flash_mla_with_kvcache(q, problem.cache, None, None, VALUE_DIM, metadata, None, SCALE, False, True, indices)[0]


def contestants_of(options, cell, _):
    problem = make_problem(cell)
    names = {f"ch08/sparse_{'decode' if cell.startswith('e4m3') else 'prefill'}": "flashbook.flash_mla"} | {who: who for who in options.peers}
    found = [peers.product("bf16")]
    for who, package in names.items():
        is_there = importlib.util.find_spec(package)
        found.append(Contestant(who, package, is_there and launch_of(importlib.import_module(package), problem), kind="decode",
                                skipped="" if is_there else f"its package, {package}, is not installed"))
    return problem, found, 2 * (KEY_DIM + VALUE_DIM) * HEADS * problem.indices.numel()


def run(options, library):
    os.environ["FLASHBOOK_LIBRARY"] = str(options.library)
    sys.path.insert(0, str(results.ROOT / "python"))
    check = lambda problem, contestants: race.check_outputs(problem, contestants[1:], largest_error, 10)
    race.run(options, library, check, {cell: functools.partial(contestants_of, options, cell) for cell in CELLS if re.search(options.only, cell)})


def main():
    global torch  # noqa: PLW0603
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help=f"only cells that match; their names look like {next(iter(CELLS))}")
    parser.add_argument("--peers", **race.some_of(("flash_mla",)))
    race.add_options(parser)
    options = parser.parse_args()
    torch = peers.torch = race.pytorch("lists.py")
    return 77 if torch is None else race.measure("lists.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
