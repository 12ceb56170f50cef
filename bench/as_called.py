#!/usr/bin/env python3
"""Times the Python package the way models call it, interleaved with FlashAttention-3's own kernels and PyTorch's attention with cuDNN.

    as_called.py [--only REGEX] [--peers fa3,cudnn] [--rounds 5] [--resume] [--out FILE] [--library FILE]

Tensors are [batch, seqlen, heads, d], or [tokens, heads, d] for packed sequences, in BF16, and most have fewer key heads than query heads. Each cell
is timed in two ways. `called/...` is the time a Python caller waits, from an idle GPU to the result. `alone/...` is the GPU alone, replaying a CUDA
graph of the same call. Gradients are torch.autograd.grad without the forward pass; FlashAttention-3's operators are wrapped in an autograd function
(bench/flash_attention_3.py). Caches have their own cells (bench/decode.py). bench/race.py documents the method, and every contestant is checked
against float64 first.
"""

import argparse
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import re
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/as_called.py finds the packages

from bench import flash_attention_3, packages, race, results
from bench.names import Name
from bench.race import SEED, Contestant

PEERS = ("fa3", "cudnn")
TOKENS, NAP = 16384, 0.02
PACKED = {"equal": (2048,) * 8,
          "ragged": (2900, 37, 3001, 1, 2047, 512, 300, 1390, 4096, 2100),
          "short": tuple(22 + 97 * i % 160 + (i < 144) for i in range(160)),
          "long": (128, 64, 64, 128, 16000)}
torch: Any = None


@dataclasses.dataclass(frozen=True)
class Cell:
    """A call."""

    heads: int
    kv_heads: int
    lengths: tuple[int, ...]  # sequence lengths
    head_dim: int = 128
    causal: bool = True
    window: int = -1  # keys before a query's own
    packed: str = ""  # a key of PACKED
    backward: bool = False
    value_dim: int = 0  # 0: head_dim

    @property
    def word(self) -> str:
        operation = "backward" if self.backward else "forward"
        packed, window = f"_packed_{self.packed}" * bool(self.packed), f"_window{self.window}" * (self.window >= 0)
        return f"{operation}{packed}{window}_h{self.heads}k{self.kv_heads}_{'causal' if self.causal else 'full'}"

    @property
    def seqlen(self) -> int:
        return sum(self.lengths) if self.packed else self.lengths[0]

    def __str__(self) -> str:
        return f"d{self.head_dim}/{self.word}/n{self.seqlen}"

    def flops(self) -> float:
        pairs = sum(sum(min(row, self.window) + 1 for row in range(length)) if self.window >= 0
                    else length * (length + 1) // 2 if self.causal else length * length for length in self.lengths)
        return 2 * (self.head_dim + (self.value_dim or self.head_dim)) * self.heads * pairs * (2.5 if self.backward else 1)

    def launches(self) -> int:
        """Launches per round: short ones get more, since the host's time varies."""
        return max(5, min(20, int(5e12 / self.flops())))


def dense(seqlen: int) -> tuple[int, ...]:
    return (seqlen,) * (TOKENS // seqlen)


CELLS = [
    *(Cell(heads, kv_heads, lengths, packed=word, causal=causal, backward=backward)
      for backward in (False, True) for word, lengths in PACKED.items() for heads, kv_heads in ((16, 16), (32, 8))
      for causal in ((True,) if backward else (True, False))),
    *(Cell(heads, kv_heads, dense(seqlen), head_dim, causal, backward=True)
      for head_dim, heads, kv_heads in ((64, 32, 8), (128, 64, 8), (128, 16, 16), (256, 8, 8))
      for seqlen in (1024, 4096, 16384) for causal in (True, False)),
    *(Cell(16, 16, lengths, 192, causal, packed=word, backward=True, value_dim=128) for causal in (True, False)
      for lengths, word in ((dense(4096), ""), (dense(16384), ""), (PACKED["ragged"], "ragged"))),
    *(Cell(32, 8, dense(seqlen), window=window) for seqlen in (4096, 16384) for window in (512, 4096)),
    *(Cell(heads, kv_heads, dense(seqlen), head_dim, causal)
      for head_dim, heads, kv_heads in ((64, 32, 32), (128, 16, 16), (128, 64, 8), (128, 32, 1), (256, 8, 8))
      for seqlen in (512, 2048, 8192, 16384) for causal in (True, False)),
]


@dataclasses.dataclass
class Problem:
    """A cell's tensors."""

    cell: Cell
    q: Any
    k: Any
    v: Any
    d_o: Any
    first: Any = None  # offset of each packed sequence
    encoded = ()

    def name(self, contestant: Contestant) -> str:
        return str(Name("called" if contestant.called else "alone", contestant.who, "bf16", self.cell.head_dim, self.cell.word, self.cell.seqlen))

    def last(self, tensor: Any) -> Any:
        """Returns the last sequence's rows of the last key head and its query heads, [rows, heads, head_dim]."""
        heads = tensor.shape[-2] // self.cell.kv_heads
        return tensor.flatten(0, -3)[-self.cell.lengths[-1]:, -heads:]

    @functools.cached_property
    def expected(self) -> list[tuple[Any, float]]:
        """Returns the expected results of `last` for O, or for dQ, dK and dV, with their tolerances."""
        right, plain = written_out(self, torch.float64), written_out(self, torch.bfloat16)
        return [(r, 2 * (p.double() - r).abs().max().item() + torch.finfo(torch.bfloat16).eps * r.abs().max().item())
                for r, p in zip(right, plain, strict=True)]


def make_problem(cell: Cell, device: str) -> Problem:
    torch.manual_seed(SEED)
    rows = (sum(cell.lengths),) if cell.packed else (len(cell.lengths), cell.lengths[0])
    value_dim = cell.value_dim or cell.head_dim
    q, k, v, d_o = (torch.randn(*rows, heads, columns, device=device, dtype=torch.bfloat16)
                    for heads, columns in ((cell.heads, cell.head_dim), (cell.kv_heads, cell.head_dim), (cell.kv_heads, value_dim),
                                           (cell.heads, value_dim)))
    first = torch.tensor([0, *cell.lengths], device=device).cumsum(0, dtype=torch.int32) if cell.packed else None
    return Problem(cell, q, k, v, d_o, first)


# ---- checks ------------------------------------------------------------------------------------------------------------------------


def written_out(problem: Problem, kind: Any) -> list[Any]:
    """Computes plain attention for `last`, one query head after another, in a type: O, or the three gradients."""
    cell = problem.cell
    q, k, v, d_o = (problem.last(tensor).detach().to(kind) for tensor in (problem.q, problem.k, problem.v, problem.d_o))
    leaves = [tensor.clone().requires_grad_(cell.backward) for tensor in (q, k, v)]
    places = torch.arange(len(q), device=q.device)
    distance = places[:, None] - places
    hidden = (distance < 0) & cell.causal | (distance > (cell.window if cell.window >= 0 else len(q)))
    outputs = []
    for head in range(q.shape[1]):
        scores = (leaves[0][:, head] @ leaves[1][:, 0].mT / math.sqrt(cell.head_dim)).masked_fill(hidden, -math.inf)
        o = torch.softmax(scores, -1) @ leaves[2][:, 0]
        if cell.backward:
            o.backward(d_o[:, head])
        else:
            outputs.append(o)
    return [leaf.grad for leaf in leaves] if cell.backward else [torch.stack(outputs, 1)]


def largest_error(problem: Problem, found: Any) -> tuple[float, float]:
    """Returns the error and bound of O, or of the gradient that is closest to its bound."""
    of_all = [((problem.last(tensor).double() - right).abs().max().item(), bound)
              for tensor, (right, bound) in zip(found if isinstance(found, tuple) else (found,), problem.expected, strict=True)]
    return max(of_all, key=lambda pair: pair[0] / pair[1] if pair[0] == pair[0] else math.inf)


# ---- contestants -------------------------------------------------------------------------------------------------------------------


def ours(problem: Problem) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Returns the package's function, and its arguments after q, k and v."""
    from flashbook import flash_attn_func, flash_attn_varlen_func

    cell = problem.cell
    options = {"causal": cell.causal, "window_size": (cell.window, 0) if cell.window >= 0 else (-1, -1)}
    if not cell.packed:
        return flash_attn_func, (), options
    longest = max(cell.lengths)
    return flash_attn_varlen_func, (problem.first, problem.first, longest, longest), options


def fa3(problem: Problem) -> Any:
    cell, attend = problem.cell, flash_attention_3.flash_attn_func()
    packing = {"cu_seqlens_q": problem.first, "cu_seqlens_k": problem.first, "max_seqlen_q": max(cell.lengths), "max_seqlen_k": max(cell.lengths)}
    return functools.partial(attend, softmax_scale=1 / math.sqrt(cell.head_dim), causal=cell.causal,
                             window_size=(cell.window, 0) if cell.window >= 0 else (-1, -1), **packing if cell.packed else {})


def cudnn(problem: Problem) -> Any:
    def attend(*tensors: Any) -> Any:
        q, k, v = (tensor.transpose(1, 2) for tensor in tensors)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=problem.cell.causal, enable_gqa=True).transpose(1, 2)

    return attend


def both(who: str, label: str, problem: Problem, attend: Any, context: Any = contextlib.nullcontext) -> list[Contestant]:
    """Returns two contestants: the GPU alone, and as called."""
    def launch() -> Any:
        leaves = [tensor.detach().requires_grad_(problem.cell.backward) for tensor in (problem.q, problem.k, problem.v)]
        # Autograd runs the gradient on the stream of its forward pass, so the stream of the first launch must be the one that is captured.
        forward = functools.cache(lambda: attend(*leaves))
        return lambda: torch.autograd.grad(forward(), leaves, problem.d_o, retain_graph=True)

    make = launch if problem.cell.backward else lambda: lambda: attend(problem.q, problem.k, problem.v)
    return [Contestant(who, label, race.Replayed(make()), context=context, nap=NAP),
            Contestant(who, label, make(), context=context, nap=NAP, called=True)]


def contestants_of(options: argparse.Namespace, cell: Cell, library: Any, device: str = "cuda") -> tuple[Problem, list[Contestant], float]:
    from flashbook import explain

    problem = make_problem(cell, device)
    function, arguments, keywords = ours(problem)
    leaves = [tensor.detach().requires_grad_(cell.backward) for tensor in (problem.q, problem.k, problem.v)]
    said = explain(function, *leaves, *arguments, **keywords)
    said = said.backward or said
    found = both(f"ch{said.chapter:02}/{said.step}", said.name, problem, lambda q, k, v: function(q, k, v, *arguments, **keywords))
    for contestant in found:
        contestant.values["chosen"] = 1
    if "fa3" in options.peers:
        lacking = packages.absent("fa3")
        found += [lacking] if lacking else both("fa3", packages.PACKAGES["fa3"].label, problem, fa3(problem))
    if "cudnn" in options.peers and not cell.packed and cell.window < 0:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        found += both("cudnn", f"cuDNN {torch.backends.cudnn.version()}, called by PyTorch", problem, cudnn(problem),
                      lambda: sdpa_kernel(SDPBackend.CUDNN_ATTENTION))
    return problem, found, cell.flops()


# ---- the program -------------------------------------------------------------------------------------------------------------------


def pick(pattern: str) -> dict[str, Cell]:
    """Returns the cells whose names match the regular expression."""
    return {str(cell): cell for cell in CELLS if re.search(pattern, str(cell))}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help=f"only cells that match; their names look like {CELLS[0]}")
    parser.add_argument("--peers", **race.some_of(PEERS))
    race.add_options(parser)
    options = parser.parse_args()
    if not pick(options.only):
        parser.error(f"--only {options.only} matches no cell: their names look like {CELLS[0]}")
    if options.before:
        parser.error("--before is not supported, since a process can load only one package: time both with bench/peers.py")
    return options


def run(options: argparse.Namespace, library: Any) -> None:
    os.environ["FLASHBOOK_LIBRARY"] = str(options.library)
    sys.path.insert(0, str(results.ROOT / "python"))
    race.run(options, library, lambda problem, contestants: race.check_outputs(problem, contestants, largest_error, problem.cell.launches()),
             {name: functools.partial(contestants_of, options, cell) for name, cell in pick(options.only).items()})


def main() -> int:
    global torch  # noqa: PLW0603
    options = parse()
    torch = packages.torch = race.pytorch("as_called.py")
    return 77 if torch is None else race.measure("as_called.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
