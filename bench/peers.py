#!/usr/bin/env python3
"""Times our kernels interleaved with those of PyTorch, or with versions of themselves, in one process.

    peers.py [--chapter 1] [--step coalesced] [--peers cudnn,flash,...] [--head-dim 128] [--mask full,causal] [--seqlen 512,...,16k] [--dtype bf16]
             [--layout bhsd,bshd] [--rounds 5] [--resume] [--seconds S] [--out FILE] [--library build/gpu/lib/libflashbook.so]
    peers.py --step ch04/late_maximum,ch05/persistent [...]   steps of two chapters; ch06/transpose_once_means: with the means added back
    peers.py --ablation [...]   chapter 5's last step with one switch changed at a time; --chapter 4: chapter 4's tuned step, and the previous one
    peers.py --cpu [...]        chapter 2's last step against PyTorch's attention on the CPU: bench/on_cpu.py

bench/race.py documents the method. `vs_cudnn` is our speed relative to cuDNN, the median of the rounds' ratios. Ours is checked against float64
attention first. cudnn and flash are PyTorch's attention with that backend, and eager is unfused; bench/packages.py has the other peers, which take
part if their packages are installed. In e4m3, fa3 and cudnn_frontend read e4m3; the others run in BF16 on the same values, and the ratio is called
`vs_cudnn_bf16`. `product` is a large matrix product in the same type, and `of_product` is the fraction of its FLOPS that attention reaches. In an
ablation, `vs_as_it_is` is a version's speed relative to the unchanged step. Results go to bench/results/<gpu>/, or to --out. Exit code 1 if ours is
wrong, 77 without a GPU or PyTorch.
"""

import argparse
import dataclasses
import functools
import math
import pathlib
import re
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/peers.py finds the packages

from bench import on_cpu, packages, race, results
from bench.names import Name
from bench.race import SEED, Contestant, Wrong, whole_numbers
from bench.structs import Shape, Tensors, feature, pointers_to

DTYPES = {"f16": 1, "bf16": 2, "e4m3": 3}  # FlashbookType; PyTorch's attention takes the first two
PEERS = ("cudnn", "flash", "eager", *packages.MAKERS, "product")
PRODUCT = 8192  # rows, columns and terms
torch: Any = None  # imported after the options are checked


@dataclasses.dataclass
class Problem:
    """A cell to measure: a shape and its inputs."""

    shape: Shape
    dtype: str
    q: Any
    k: Any
    v: Any
    encoded: Any = ()  # read by ours instead of q, k and v: the same in e4m3
    layout: str = race.LAYOUTS[0]

    def name(self, contestant):
        mask = race.in_layout("causal" if self.shape.causal else "full", self.layout)
        # Values of e4m3 draw less power than random ones of BF16, so a peer on them is measured under a name of its own.
        in_bf16 = bool(self.encoded) and not contestant.encoded and not contestant.who.startswith("ch") and contestant.who != "product"
        return str(Name(contestant.kind, contestant.who + in_bf16 * "_bf16", self.dtype, self.shape.head_dim, mask, self.shape.seqlen_q))


def make_problem(dtype, head_dim, causal, seqlen, layout=race.LAYOUTS[0]):
    """Returns the papers' shapes: batch * N = 16384 tokens, heads * head_dim = 2048; normally distributed inputs."""
    batch, heads = max(1, 16384 // seqlen), 2048 // head_dim
    shape = Shape(batch, heads, heads, seqlen, seqlen, head_dim, int(causal), DTYPES[dtype], 1 / math.sqrt(head_dim))
    torch.manual_seed(SEED)
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    q, k, v = (race.randn(layout, batch, heads, seqlen, head_dim, kind) for _ in range(3))
    if layout != race.LAYOUTS[0]:
        race.set_strides(shape, q=q, k=k, v=v, o=q)
    if dtype != "e4m3":
        return Problem(shape, dtype, q, k, v, layout=layout)
    encoded = tuple(tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v))
    q, k, v = (tensor.to(kind) for tensor in encoded)
    return Problem(shape, dtype, q, k, v, encoded, layout)


# ---- contestants -------------------------------------------------------------------------------------------------------------------


def ours(library, chapter, slug, problem, ablation=False, means=False):
    step = library.step(chapter, slug)
    name = library.step_name(chapter, step)
    who = f"ch{chapter:02}/{slug}" + "_means" * means
    found = Contestant(who, name, None, kind="ablation" if ablation else "forward")
    shape = problem.shape
    zeros = torch.zeros(shape.batch, shape.kv_heads, shape.head_dim, device="cuda", dtype=torch.float32) if means else None  # which leave O unchanged
    given = shape.described(*([feature("Scales", k_mean=zeros.data_ptr(), v_mean=zeros.data_ptr())] if zeros is not None else []))
    size = library.workspace_bytes(chapter, step, given)
    if size < 0:
        found.skipped = library.error()
        return found
    q, k, v = problem.encoded or (problem.q, problem.k, problem.v)
    o = torch.full_like(problem.q, float("nan"))
    lse = torch.full(q.shape[:3], float("nan"), device="cuda", dtype=torch.float32)
    try:
        workspace = torch.zeros(size, device="cuda", dtype=torch.uint8)
    except RuntimeError:
        found.skipped = f"needs {size / 1e9:.1f} GB of GPU memory in addition to its inputs and outputs"
        return found
    tensors = pointers_to(Tensors, q, k, v, o, lse, workspace)
    moved = library.cost(chapter, step, shape)[1]
    found.values = {"workspace_bytes": size, "tensor_bytes": sum(t.nbytes for t in (q, k, v, o, lse)), "bytes": moved}

    def run():
        library.attention(chapter, step, given, tensors)
        return o

    found.run = run
    found.keeps = (lse, workspace, zeros)
    return found


def peer(who, problem):
    """Returns PyTorch's attention with one backend forced, or unfused; that of a package; or a matrix product."""
    q, k, v, causal, scale = problem.q, problem.k, problem.v, bool(problem.shape.causal), problem.shape.scale
    if who in packages.MAKERS:
        return packages.forward(who, problem)
    if who == "product":
        return product(problem.dtype)
    if who == "eager":
        n = problem.shape.seqlen_q
        hidden = torch.ones(n, n, device="cuda", dtype=torch.bool).triu(1) if causal else None

        def run():
            scores = (q * scale) @ k.mT
            if hidden is not None:
                scores.masked_fill_(hidden, float("-inf"))
            return torch.softmax(scores, -1) @ v

        return Contestant(who, "softmax(Q K^T) V, each in memory", run)

    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[who]
    run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return Contestant(who, backend.name, run, context=lambda: sdpa_kernel(backend))


def product(dtype):
    """Returns a large matrix product of PyTorch (cuBLAS) in a type."""
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=torch.float16 if dtype == "f16" else torch.bfloat16) for _ in range(2))
    if dtype == "e4m3":
        a, b, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        run = lambda: torch._scaled_mm(a, b.mT, one, one, out_dtype=torch.bfloat16)
    else:
        run = lambda: a @ b.mT
    return Contestant("product", f"{PRODUCT}-cubed matrix product", run, flops=2 * PRODUCT**3)


# ---- checks ------------------------------------------------------------------------------------------------------------------------


def plain(q, k, v, visible, scale, rounded=False):
    """Returns softmax(scale q k^T) v for some rows, in the type of the inputs, with P optionally `rounded` to e4m3. visible: [rows, keys]."""
    scores = ((q @ k.mT) * scale).masked_fill(~visible, float("-inf"))
    if not rounded:
        return torch.softmax(scores, -1) @ v
    p = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (p.to(torch.float8_e4m3fn).to(p.dtype) @ v) / p.sum(-1, keepdim=True)


def largest_errors(problem, outputs):
    """Returns {who: largest error} of some rows of the first, a middle and the last head against float64, and the
    bound.

    The bound is that of the book: twice the error of plain attention in the inputs' type, plus a unit in the last place.
    """
    batch, heads, n, _ = problem.q.shape
    generator = torch.Generator(device="cuda").manual_seed(SEED)
    errors, plain_error, largest = dict.fromkeys(outputs, 0.0), 0.0, 0.0
    for b, h in ((0, 0), (batch // 2, heads // 2), (batch - 1, heads - 1)):
        rows = torch.cat([torch.tensor([0, n - 1], device="cuda"), torch.randint(n, (30,), device="cuda", generator=generator)])
        visible = torch.ones(len(rows), n, device="cuda", dtype=torch.bool)
        if problem.shape.causal:
            visible = torch.arange(n, device="cuda")[None, :] <= rows[:, None]
        q, k, v = problem.q[b, h, rows], problem.k[b, h], problem.v[b, h]
        exact = plain(q.double(), k.double(), v.double(), visible, problem.shape.scale)
        far = lambda o, exact=exact: (o.double() - exact).abs().max().item()
        plain_error = max(plain_error, far(plain(q, k, v, visible, problem.shape.scale, bool(problem.encoded))))
        largest = max(largest, exact.abs().max().item())
        for who, o in outputs.items():
            error = far(o[b, h, rows])
            errors[who] = error if math.isnan(error) else max(errors[who], error)  # keeps NaN
    return errors, 2 * plain_error + torch.finfo(problem.q.dtype).eps * 2 ** math.floor(math.log2(largest))


def fp8_error(problem, who, o):
    """Returns the bound for an O in e4m3, whose rounding adds at most a sixteenth of the largest element."""
    errors, bound = largest_errors(problem, {who: o.to(problem.q.dtype)})
    return errors[who], 2 * bound + o.to(problem.q.dtype).abs().max().item() / 16


def check(problem, contestants):
    """Runs each contestant once, records errors, and drops those that cannot run. Raises Wrong if a kernel of ours is wrong."""
    for contestant in contestants:
        if contestant.skipped:
            continue
        try:
            with contestant.context():
                contestant.run()  # loads the kernels
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                o = contestant.run()
                end.record()
            torch.cuda.synchronize()
        except Exception as error:  # includes torch.OutOfMemoryError; packages raise all kinds
            refused = isinstance(error, results.Refused) or "memory" in str(error)
            if contestant.who.startswith("ch") and not refused:
                raise Wrong(f"{problem.name(contestant)}: {error}") from None
            contestant.skipped = (str(error).splitlines() or [type(error).__name__])[0]
            continue
        contestant.launches = max(1, min(20, int(100 / begin.elapsed_time(end))))
        if contestant.flops:  # a contestant that does not compute attention
            continue
        if o.dtype != problem.q.dtype:  # cuDNN writes O in e4m3
            contestant.values["error"], bound = fp8_error(problem, contestant.who, o)
            contestant.values["error_bound"] = bound
            if not contestant.values["error"] <= bound:
                contestant.skipped = f"{problem.name(contestant)}: error {contestant.values['error']:.1e}, bound {bound:.1e}"
            continue
        errors, bound = largest_errors(problem, {contestant.who: o})
        contestant.values |= {"error": errors[contestant.who], "error_bound": bound}
        message = f"{problem.name(contestant)}: error {errors[contestant.who]:.1e}, bound {bound:.1e}"
        if contestant.who.startswith("ch") and not errors[contestant.who] <= bound:
            raise Wrong(message)
        if not errors[contestant.who] <= 2 * bound:  # peers may round once more than we do, but wrong peers do not count
            contestant.skipped = message
        del o


# ---- the program -------------------------------------------------------------------------------------------------------------------


def steps_of(text):
    """Parses "all", "pingpong,5" into ["pingpong", "5"], or "ch04/tuned,ch06/straight_means" into [(4, "tuned", False), (6, "straight", True)]."""
    if text == "all" or "/" not in text:
        return text if text == "all" else text.split(",")
    words = text.split(",")
    found = [(int(word[1]), word[2], bool(word[3])) for word in (re.fullmatch(r"ch(\d\d)/(\w+?)(_means)?", word) for word in words) if word]
    if len(found) < len(words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of steps: use steps such as pingpong,persistent, also of several chapters: "
                                         "ch04/tuned,ch05/persistent")
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", action="store_true", help="chapter 5's last step, or chapter 4's tuned one, and its switches, without peers")
    parser.add_argument("--cpu", action="store_true", help="chapter 2's last step and PyTorch on the CPU: bench/on_cpu.py has its options")
    parser.add_argument("--chapter", type=whole_numbers, help="chapters of the forward pass, such as 1,3 (default: 5, or 6 for e4m3)")
    parser.add_argument("--step", type=steps_of, help="steps of these chapters, or all (default: the last); or ch04/tuned,ch05/persistent")
    parser.add_argument("--peers", **race.some_of(PEERS))
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--head-dim", type=whole_numbers, default=[64, 128, 256])
    parser.add_argument("--mask", **race.some_of(("full", "causal")))
    parser.add_argument("--seqlen", type=whole_numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    race.add_layout(parser)
    race.add_options(parser)
    options = parser.parse_args()
    options.layout = options.layout[:1] if options.ablation else options.layout
    options.peers = [] if options.ablation else options.peers
    return options


def pick_ours(library, options):
    """Returns [(chapter, step, whether means are added back)] from the command line."""
    on_device = {chapter.number: chapter for chapter in library.chapters() if chapter.on_device}
    named = options.step if isinstance(options.step, list) and isinstance(options.step[0], tuple) else []
    for number in [*(options.chapter or []), *(number for number, *_ in named)]:
        if number not in on_device:
            raise results.Refused(f"chapter {number} has no kernel: use some of {', '.join(map(str, on_device))}")
    if named:
        return named
    asked = options.step or ("all" if options.ablation else None)
    steps_of = lambda number: library.slugs(number) if asked == "all" else library.slugs(number, asked) if asked else library.slugs(number)[-1:]
    return [(number, step, False) for number in options.chapter or [6 if options.dtype == "e4m3" else 5] for step in steps_of(number)]


def cell(options, chosen, head_dim, mask, seqlen, layout, library):
    problem = make_problem(options.dtype, head_dim, mask == "causal", seqlen, layout)
    contestants = [ours(library, chapter, step, problem, options.ablation, means) for chapter, step, means in chosen]
    contestants += [peer(who, problem) for who in options.peers]
    return problem, contestants, library.cost(chosen[0][0], library.step(*chosen[0][:2]), problem.shape)[0]


def run(options, library):
    chosen = pick_ours(library, options)
    race.run(options, library, check, {
        f"d{head_dim}/{race.in_layout(mask, layout)}/n{seqlen}": functools.partial(cell, options, chosen, head_dim, mask, seqlen, layout)
        for head_dim in options.head_dim for mask in options.mask for seqlen in options.seqlen for layout in options.layout})


def main():
    global torch  # noqa: PLW0603
    if "--cpu" in sys.argv[1:]:
        return on_cpu.main([word for word in sys.argv[1:] if word != "--cpu"])
    options = parse()
    torch = packages.torch = race.pytorch("peers.py")
    return 77 if torch is None else race.measure("peers.py", options, run, "ablation" if options.ablation else "flashbook_shared")


if __name__ == "__main__":
    sys.exit(main())
