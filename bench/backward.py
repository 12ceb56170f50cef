#!/usr/bin/env python3
"""Times gradients, interleaved: chapter 7's steps, and PyTorch's gradients with cuDNN, with FlashAttention-2, and unfused, with P in memory.

    backward.py [--step one_pass,persistent] [--peers cudnn,flash,eager,fa3,...] [--head-dim 64,128,256] [--mask full,causal] [--seqlen 512,1k,4k,16k]
                [--layout bhsd,bshd] [--rounds 5] [--out FILE] [--library FILE]
    backward.py --accuracy [...]   no times: the errors of dQ, dK and dV against FP64, for four kinds of inputs
    backward.py --ablation [...]   the persistent step with one switch changed at a time, and the previous step, at d = 64 and 128

bench/race.py documents the method. A peer's time is that of torch.autograd.grad alone, without the forward pass, which determines the kernel. Our
time includes computing D and converting dQ. FLOPs are 2.5 times those of the forward pass. `vs_cudnn` is our speed relative to cuDNN. `kept_bytes`
is what a forward pass saves for the backward pass in addition to Q, K, V and O, and `peak_bytes` is the additional peak memory of the backward pass.
Ours is checked against float64 gradients of a head first. fa3, fa4 and cudnn_frontend (bench/packages.py) take part if their packages are
installed.
"""

import argparse
import dataclasses
import functools
import json
import math
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/backward.py finds the packages

from bench import packages, peers, race, results
from bench.peers import DTYPES
from bench.race import Contestant, Wrong, whole_numbers
from bench.structs import Gradients, Tensors, pointers_to

CHAPTER = 7
PEERS = ("cudnn", "flash", "eager", *packages.GRADIENTS)
KINDS = ("normal", "outliers", "one_hot", "large_scores")  # kinds of inputs, for --accuracy
torch: Any = None


@dataclasses.dataclass
class Problem(peers.Problem):
    """A cell to measure: a shape, its inputs, and the results of a forward pass."""

    d_o: Any = None
    o: Any = None
    lse: Any = None


def make_problem(dtype, head_dim, causal, seqlen, kind="normal", layout=race.LAYOUTS[0]):
    """Returns the papers' shapes, as in peers.py. O and the log-sum-exp are PyTorch's own. Kinds of inputs as in
    attention/inputs.h."""
    base = peers.make_problem(dtype, head_dim, causal, seqlen, layout)
    q, k, v = base.q, base.k, base.v
    if kind == "outliers":
        q, k, v = (tensor + 10 * torch.randn_like(tensor) * (torch.rand_like(tensor) < 0.001) for tensor in (q, k, v))
    elif kind == "one_hot":
        q = 8 * k[:, :, torch.randperm(seqlen, device="cuda")]  # the score of its key is 8 sqrt(head_dim), other scores are N(0, 64)
    elif kind == "large_scores":
        factor = (1e4 / ((q[0, 0].float() @ k[0, 0].float().mT).abs().max() * base.shape.scale)).sqrt().item()
        q, k = q * factor, k * factor
    o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, bool(causal), False, scale=base.shape.scale)
    return Problem(base.shape, dtype, q, k, v, (), layout, torch.randn_like(q), torch.empty_like(q).copy_(o), lse.contiguous())


def ours(library, slug, problem, ablation=False):
    step = library.step(CHAPTER, slug)
    found = Contestant(f"ch{CHAPTER:02}/{slug}", library.step_name(CHAPTER, step), None, kind="ablation" if ablation else "backward")
    shape, gradients = dataclasses.replace(problem.shape), [torch.full_like(tensor, float("nan")) for tensor in (problem.q, problem.k, problem.v)]
    if problem.layout != race.LAYOUTS[0]:
        race.set_strides(shape, **dict(zip(("d_o", "dq", "dk", "dv"), (problem.d_o, *gradients))))
    given = shape.described()
    size = library.workspace_bytes(CHAPTER, step, given)
    if size < 0:
        found.skipped = library.error()
        return found
    workspace = torch.empty(size, device="cuda", dtype=torch.uint8)
    inputs = (problem.q, problem.k, problem.v, problem.o, problem.lse)
    tensors, pointers = pointers_to(Tensors, *inputs, workspace), pointers_to(Gradients, problem.d_o, *gradients)
    found.values = {"workspace_bytes": size, "tensor_bytes": sum(t.nbytes for t in (*inputs, problem.d_o, *gradients)),
                    "bytes": library.cost(CHAPTER, step, problem.shape)[1]}

    def run():
        library.backward(CHAPTER, step, given, tensors, pointers)
        return gradients

    found.run = run
    found.keeps = (workspace, gradients)
    return found


def peer(who, problem):
    """Returns torch.autograd.grad of PyTorch's attention with one backend forced, of unfused attention, or of a
    package's; or cuDNN's graph."""
    if who == "cudnn_frontend":
        found = packages.absent(who, "backward") or Contestant(who, packages.PACKAGES[who].label, None, kind="backward")
        if not found.install:
            try:
                found.run = packages.cudnn_gradient(problem)
            except Exception as error:  # another version, or an unsupported shape
                found.skipped = (str(error).splitlines() or [type(error).__name__])[0]
        return found
    leaves = [tensor.detach().requires_grad_() for tensor in (problem.q, problem.k, problem.v)]
    forward = peers.peer(who, dataclasses.replace(problem, q=leaves[0], k=leaves[1], v=leaves[2]))
    found = Contestant(who, forward.label, None, skipped=forward.skipped, kind="backward", install=forward.install)
    if found.skipped:
        return found
    before = torch.cuda.memory_allocated()
    try:
        with forward.context():
            o = forward.run()
    except Exception as error:
        found.skipped = (str(error).splitlines() or [type(error).__name__])[0]
        return found
    found.values = {"kept_bytes": torch.cuda.memory_allocated() - before - o.nbytes}
    found.run = lambda: list(torch.autograd.grad(o, leaves, problem.d_o, retain_graph=True))
    return found


def exact(problem, b, h, kind):
    """Computes dQ, dK and dV of a head, by autograd in type `kind`."""
    q, k, v = (tensor[b, h].detach().to(kind).requires_grad_() for tensor in (problem.q, problem.k, problem.v))
    scores = (q @ k.mT) * problem.shape.scale
    if problem.shape.causal:
        n = problem.shape.seqlen_q
        scores = scores.masked_fill(torch.ones(n, n, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
    o = torch.softmax(scores, -1) @ v
    return torch.autograd.grad(o, (q, k, v), problem.d_o[b, h].to(kind))


def check(problem, contestants):
    """Runs each contestant once, records errors of the last head, and drops those that cannot run. Raises Wrong if a kernel of ours is wrong."""
    b, h = problem.shape.batch - 1, problem.shape.heads - 1
    right, plain = exact(problem, b, h, torch.float64), exact(problem, b, h, problem.q.dtype)
    bounds = [2 * (p.double() - r).abs().max().item() + 2**-7 * r.abs().max().item() for p, r in zip(plain, right)]
    del plain
    for contestant in contestants:
        if contestant.skipped:
            continue
        try:
            contestant.run()  # loads the kernels
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            gradients = contestant.run()
            end.record()
            torch.cuda.synchronize()
            contestant.values["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        except Exception as error:
            refused = isinstance(error, results.Refused) or "memory" in str(error)
            if contestant.who.startswith("ch") and not refused:
                raise Wrong(f"{problem.name(contestant)}: {error}") from None
            contestant.skipped = (str(error).splitlines() or [type(error).__name__])[0]
            continue
        contestant.launches = max(1, min(20, int(100 / begin.elapsed_time(end))))
        errors = [(got[b, h].double() - want).abs().max().item() for got, want in zip(gradients, right)]
        worst = max(range(3), key=lambda i: errors[i] / bounds[i] if errors[i] == errors[i] else float("inf"))
        contestant.values |= {"error": errors[worst], "error_bound": bounds[worst]}
        if not errors[worst] <= bounds[worst]:
            message = f"{problem.name(contestant)}: error {errors[worst]:.1e} of {('dQ', 'dK', 'dV')[worst]}, bound {bounds[worst]:.1e}"
            if contestant.who.startswith("ch"):
                raise Wrong(message)
            if not errors[worst] <= 2 * bounds[worst]:
                contestant.skipped = message


def cell(options, head_dim, mask, seqlen, layout, library):
    problem = make_problem(options.dtype, head_dim, mask == "causal", seqlen, layout=layout)
    contestants = [ours(library, step, problem, options.ablation) for step in library.slugs(CHAPTER, options.step)]
    contestants += [peer(who, problem) for who in options.peers]
    return problem, contestants, library.cost(CHAPTER, 1, problem.shape)[0]


def run(options, library):
    race.run(options, library, check, {
        f"d{head_dim}/{race.in_layout(mask, layout)}/n{seqlen}": functools.partial(cell, options, head_dim, mask, seqlen, layout)
        for head_dim in options.head_dim for mask in options.mask for seqlen in options.seqlen for layout in options.layout})


def errors(options, library):
    """Returns the root mean square of the errors of two heads' dQ, dK and dV, for every kind of inputs, and of the
    gradients themselves."""
    whole = {"context": race.context(library), "benchmarks": []}
    for head_dim in options.head_dim:
        for kind in KINDS:
            problem = make_problem(options.dtype, head_dim, False, options.seqlen[0], kind)
            heads = [(0, 0), (problem.shape.batch - 1, problem.shape.heads - 1)]
            right = [exact(problem, *head, torch.float64) for head in heads]
            contestants = [Contestant("exact", "the gradient itself", None)]
            contestants += [peer(who, problem) for who in options.peers]
            contestants += [ours(library, step, problem) for step in library.slugs(CHAPTER, options.step)]
            for contestant in contestants:
                if contestant.skipped:
                    continue
                got = contestant.run() if contestant.run else None
                squares = [sum(((got[i][head].double() if got else 0) - want[i]).square().mean().item() for head, want in zip(heads, right))
                           for i in range(3)]
                contestant.kind = f"gradients/{kind}"
                name = problem.name(contestant)
                found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0,
                         "time_unit": "ms", "label": contestant.label}
                found |= {tensor: math.sqrt(square / len(heads)) for tensor, square in zip(("dq", "dk", "dv"), squares)}
                whole["benchmarks"].append(found)
                print(f"{name:52}", *(f"{tensor} {found[tensor]:.2e}" for tensor in ("dq", "dk", "dv")), flush=True)
            options.out.write_text(json.dumps(whole, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=lambda text: text.split(","), help="steps of chapter 7 (default: all)")
    parser.add_argument("--peers", **race.some_of(PEERS))
    parser.add_argument("--dtype", choices=[name for name in DTYPES if name != "e4m3"], default="bf16")
    parser.add_argument("--head-dim", type=whole_numbers)
    parser.add_argument("--mask", **race.some_of(("full", "causal")))
    parser.add_argument("--seqlen", type=whole_numbers)
    parser.add_argument("--ablation", action="store_true", help="the persistent step and its switches, without peers")
    parser.add_argument("--accuracy", action="store_true", help="errors at the first of --seqlen (default: 4k) instead of times")
    race.add_layout(parser)
    race.add_options(parser)
    options = parser.parse_args()
    options.layout = options.layout[:1] if options.ablation else options.layout
    options.seqlen = options.seqlen or ([4096] if options.accuracy else [512, 1024, 4096, 16384])
    options.head_dim = options.head_dim or ([64, 128] if options.ablation else [64, 128, 256])
    options.peers = [] if options.ablation else options.peers
    return options


def main():
    global torch  # noqa: PLW0603
    options = parse()
    torch = peers.torch = packages.torch = race.pytorch("backward.py")
    return 77 if torch is None else race.measure("backward.py", options, errors if options.accuracy else run,
                                                   "ablation" if options.ablation else "flashbook_shared")


if __name__ == "__main__":
    sys.exit(main())
