#!/usr/bin/env python3
"""Times our kernels in turn with PyTorch's, or with versions of themselves, in one process.

    peers.py [--chapter 1] [--step 2] [--peers cudnn,flash,eager,fa2,fa3,product] [--head-dim 128] [--mask full,causal]
             [--seqlen 512,...,16k] [--dtype bf16] [--rounds 5] [--out FILE] [--library build/gpu/lib/libflashbook.so]
    peers.py --ablation [...]   chapter 5's last step in turn with itself, one switch turned at a time
    peers.py --cpu [...]        chapter 2's last step in turn with PyTorch's attention on the CPU: bench/on_cpu.py

The card's power is limited, so what ran before changes what is measured. Therefore: in every round each contestant is timed once, in
random order, after a nap of 60 ms; a time is the median of some launches between CUDA events, L2 flushed before each; a result is the
median of the rounds. `vs_cudnn` is how many times as fast as cuDNN ours is, by the median of the rounds' ratios. Ours is checked against
float64 attention first. In e4m3 the peers run in BF16, on the same values, and the ratio is `vs_cudnn_bf16`. fa2 and fa3 are
FlashAttention-2's and -3's own packages, where they are installed. `product` is a large matrix product in the same type, and `of_product`
the part of its FLOPS that an attention reaches, by the median of the rounds. Of an ablation `vs_as_it_is` is how many times as fast as the step
itself a version is. Results go to bench/results/<gpu>/, or to --out. Exit code 1 if ours is wrong, 77 without a GPU or PyTorch.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import datetime
import importlib
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # the packages, for python3 bench/peers.py

from bench import results
from bench.names import Name
from bench.structs import Chapter, Shape, Tensors

NAP = 0.06  # seconds
SEED = 1
DTYPES = {"f16": 1, "bf16": 2, "e4m3": 3}  # FlashbookType; PyTorch's attention takes the first two
PACKAGES = {"fa2": ("FlashAttention-2", "flash_attn"), "fa3": ("FlashAttention-3", "flash_attn_interface")}
PEERS = ("cudnn", "flash", "eager", *PACKAGES, "product")
PRODUCT = 8192  # rows, columns and terms
torch: Any = None  # imported once the options are right


class Library:
    """libflashbook.so."""

    def __init__(self, path):
        self.c = ctypes.CDLL(os.path.abspath(path))  # a name without a slash would be looked for elsewhere
        for name in ("flashbook_last_error", "flashbook_toolkit", "flashbook_step_name"):
            getattr(self.c, name).restype = ctypes.c_char_p
        self.c.flashbook_workspace_bytes.restype = ctypes.c_int64
        self.c.flashbook_attention.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(Shape), ctypes.POINTER(Tensors), ctypes.c_void_p]

    def error(self):
        return self.c.flashbook_last_error().decode()

    def toolkit(self):
        return self.c.flashbook_toolkit().decode()

    def chapters(self):
        found = [Chapter() for _ in range(self.c.flashbook_chapter_count())]
        for place, chapter in enumerate(found):
            self.c.flashbook_chapter(place, ctypes.byref(chapter))
        return found

    def step_name(self, chapter, step):
        return self.c.flashbook_step_name(chapter, step).decode()

    def workspace_bytes(self, chapter, step, shape):
        """Bytes, or -1 if the step cannot run the shape; then error() says why."""
        return self.c.flashbook_workspace_bytes(chapter, step, ctypes.byref(shape))

    def cost(self, chapter, step, shape):
        """(FLOPs, bytes moved) by the cost model."""
        flops, moved = ctypes.c_double(), ctypes.c_double()
        self.c.flashbook_cost(chapter, step, ctypes.byref(shape), ctypes.byref(flops), ctypes.byref(moved))
        return flops.value, moved.value

    def attention(self, chapter, step, shape, tensors, stream):
        if self.c.flashbook_attention(chapter, step, ctypes.byref(shape), ctypes.byref(tensors), stream):
            raise RuntimeError(self.error())


@dataclasses.dataclass
class Contestant:
    """One of those that are timed in turn."""

    who: str  # "ch01/step2", "cudnn", "ch05/one_loop" of an ablation
    label: str
    run: Any  # launches it once and returns O
    context: object = contextlib.nullcontext  # entered around all of a measurement's launches
    values: dict[str, float] = dataclasses.field(default_factory=dict)  # counters for its result
    skipped: str = ""
    launches: int = 1  # in a round
    milliseconds: list[float] = dataclasses.field(default_factory=list)  # of every round
    keeps: Any = ()  # tensors that live as long as their pointers are used
    kind: str = "forward"  # or "ablation": the first part of its result's name
    flops: float = 0  # of a launch, if not the problem's


@dataclasses.dataclass
class Problem:
    """One cell: a shape and its inputs."""

    shape: Shape
    dtype: str
    q: Any
    k: Any
    v: Any
    encoded: Any = ()  # what ours reads, if that is not q, k and v: their e4m3

    def name(self, contestant):
        mask = "causal" if self.shape.causal else "full"
        # Values of e4m3 draw less power than random ones of BF16, so a peer on them is measured under a name of its own.
        in_bf16 = bool(self.encoded) and not contestant.who.startswith("ch") and contestant.who != "product"
        return str(Name(contestant.kind, contestant.who + in_bf16 * "_bf16", self.dtype, self.shape.head_dim, mask, self.shape.seqlen_q))


def make_problem(dtype, head_dim, causal, seqlen):
    """The papers' shapes: batch * N = 16384 tokens, heads * head_dim = 2048; normal random inputs."""
    batch, heads = max(1, 16384 // seqlen), 2048 // head_dim
    shape = Shape(batch, heads, heads, seqlen, seqlen, head_dim, int(causal), DTYPES[dtype], 1 / math.sqrt(head_dim))
    torch.manual_seed(SEED)
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    q, k, v = (torch.randn(batch, heads, seqlen, head_dim, device="cuda", dtype=kind) for _ in range(3))
    if dtype != "e4m3":
        return Problem(shape, dtype, q, k, v)
    encoded = tuple(tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v))
    q, k, v = (tensor.to(kind) for tensor in encoded)
    return Problem(shape, dtype, q, k, v, encoded)


# ---- contestants -------------------------------------------------------------------------------------------------------------------


def ours(library, chapter, step, problem, ablation):
    name = library.step_name(chapter, step)
    found = Contestant(f"ch{chapter:02}/{name if ablation else f'step{step}'}", name, None, kind="ablation" if ablation else "forward")
    size = library.workspace_bytes(chapter, step, problem.shape)
    if size < 0:
        found.skipped = library.error()
        return found
    q, k, v = problem.encoded or (problem.q, problem.k, problem.v)
    o = torch.full_like(problem.q, float("nan"))
    lse = torch.full(q.shape[:3], float("nan"), device="cuda", dtype=torch.float32)
    try:
        workspace = torch.zeros(size, device="cuda", dtype=torch.uint8)
    except RuntimeError:
        found.skipped = f"needs {size / 1e9:.1f} GB of GPU memory beyond its inputs and outputs"
        return found
    tensors = Tensors(*(t.data_ptr() for t in (q, k, v, o, lse, workspace)))
    moved = library.cost(chapter, step, problem.shape)[1]
    found.values = {"workspace_bytes": size, "tensor_bytes": sum(t.nbytes for t in (q, k, v, o, lse)), "bytes": moved}

    def run():
        library.attention(chapter, step, problem.shape, tensors, torch.cuda.current_stream().cuda_stream)
        return o

    found.run = run
    found.keeps = (lse, workspace)
    return found


def peer(who, problem):
    """PyTorch's attention with one backend forced, or written out; a package's; or a matrix product."""
    q, k, v, causal, scale = problem.q, problem.k, problem.v, bool(problem.shape.causal), problem.shape.scale
    if who in PACKAGES:
        return package(who, (q, k, v), softmax_scale=scale, causal=causal)
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


def package(who, tensors, kind="forward", **options):
    """FlashAttention's own package, where it is installed. tensors: Q, K and V, [batch, heads, seqlen, head_dim]; it has the heads third."""
    label, module = PACKAGES[who]
    try:
        attend = importlib.import_module(module).flash_attn_func
    except ImportError:
        return Contestant(who, "", None, skipped=f"its package, {module}, is not installed", kind=kind)

    def run():
        o = attend(*(tensor.transpose(1, 2) for tensor in tensors), **options)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

    return Contestant(who, label, run, kind=kind)


def product(dtype):
    """A large matrix product in a type, as PyTorch and cuBLAS compute it."""
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=torch.float16 if dtype == "f16" else torch.bfloat16) for _ in range(2))
    if dtype == "e4m3":
        a, b, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        run = lambda: torch._scaled_mm(a, b.mT, one, one, out_dtype=torch.bfloat16)
    else:
        run = lambda: a @ b.mT
    return Contestant("product", f"matrix product, {PRODUCT} in each direction", run, flops=2 * PRODUCT**3)


# ---- right before fast -------------------------------------------------------------------------------------------------------------


def plain(q, k, v, visible, scale, rounded=False):
    """softmax(scale q k^T) v for some rows, in the type of the inputs, P `rounded` to e4m3 or not. visible: [rows, keys]."""
    scores = ((q @ k.mT) * scale).masked_fill(~visible, float("-inf"))
    if not rounded:
        return torch.softmax(scores, -1) @ v
    p = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (p.to(torch.float8_e4m3fn).to(p.dtype) @ v) / p.sum(-1, keepdim=True)


def largest_errors(problem, outputs):
    """{who: largest error} of some rows of the first, a middle and the last head against float64, and the bound.

    The bound is the book's: twice what plain attention in the inputs' type errs, and a unit in the last place.
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
            errors[who] = error if math.isnan(error) else max(errors[who], error)  # once NaN, NaN for good
    return errors, 2 * plain_error + torch.finfo(problem.q.dtype).eps * 2 ** math.floor(math.log2(largest))


def check(problem, contestants):
    """Runs each once, notes errors, and sets who cannot run aside. Raises Wrong if one of ours is wrong."""
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
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if contestant.who.startswith("ch") and "memory" not in str(error):
                raise Wrong(f"{problem.name(contestant)}: {error}") from None
            contestant.skipped = str(error).splitlines()[0]
            continue
        contestant.launches = max(1, min(20, int(100 / begin.elapsed_time(end))))
        if contestant.flops:  # no attention
            continue
        errors, bound = largest_errors(problem, {contestant.who: o})
        contestant.values |= {"error": errors[contestant.who], "error_bound": bound}
        message = f"{problem.name(contestant)}: error {errors[contestant.who]:.1e}, bound {bound:.1e}"
        if contestant.who.startswith("ch") and not errors[contestant.who] <= bound:
            raise Wrong(message)
        if not errors[contestant.who] <= 2 * bound:  # a peer may round once more than we do; a wrong one is no peer
            contestant.skipped = message
        del o


def check_outputs(problem, contestants, largest_error, launches):
    """check() for the programs of other chapters: `largest_error(problem, o)` gives an output's error and bound, and each that can run has
    `launches` in a round."""
    for contestant in contestants:
        if contestant.skipped:
            continue
        try:
            with contestant.context():
                contestant.run()  # loads the kernels
                o = contestant.run()
            torch.cuda.synchronize()
        except Exception as error:  # what torch.compile throws is no RuntimeError
            if contestant.who.startswith("ch"):
                raise Wrong(f"{problem.name(contestant)}: {error}") from None
            contestant.skipped = (str(error).splitlines() or ["failed"])[0]
            continue
        largest, bound = largest_error(problem, o)
        contestant.values |= {"error": largest, "error_bound": bound}
        contestant.launches = launches
        message = f"{problem.name(contestant)}: error {largest:.1e}, bound {bound:.1e}"
        if contestant.who.startswith("ch") and not largest <= bound:
            raise Wrong(message)
        if not largest <= 2 * bound:
            contestant.skipped = message


class Wrong(Exception):
    """A kernel of ours failed or gave a wrong result."""


# ---- timing ------------------------------------------------------------------------------------------------------------------------


def timed(contestant, cache_filler):
    """Milliseconds: the median of the contestant's launches, after a nap."""
    time.sleep(NAP)
    events = []
    with contestant.context():
        for _ in range(contestant.launches + (contestant.launches > 1)):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            cache_filler.zero_()  # takes long enough that the launch below waits for nothing but the card
            begin.record()
            contestant.run()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
    # The first of several launches warms up.
    return statistics.median(begin.elapsed_time(end) for begin, end in events[contestant.launches > 1:])


def race(contestants, rounds, shuffle, cache_filler):
    """Times each in every round, in a new order."""
    runners = [contestant for contestant in contestants if not contestant.skipped]
    for _ in range(rounds):
        shuffle(runners)
        for contestant in runners:
            contestant.milliseconds.append(timed(contestant, cache_filler))


def entry(problem, contestant, contestants, flops):
    """A result as Google Benchmark would write it."""
    name = problem.name(contestant)
    found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0,
             "time_unit": "ms", "label": contestant.label}
    if contestant.skipped:
        return found | {"error_occurred": True, "error_message": contestant.skipped, "label": "skipped"}
    median = statistics.median(contestant.milliseconds)
    values = dict(contestant.values)
    moved = values.pop("bytes", None)
    if moved:
        values["bytes_per_second"] = moved / (median * 1e-3)
    ours = contestant.who.startswith("ch")
    for other in contestants:
        against = "as_it_is" if other.who.endswith("/as_it_is") else other.who
        if other.skipped or other is contestant or against.startswith("ch"):
            continue
        ratio = statistics.median(b / a for a, b in zip(contestant.milliseconds, other.milliseconds))
        if other.flops and (ours or not problem.encoded):  # peers of FP8 are BF16, the product is not
            values["of_" + against] = ratio * flops / other.flops
        elif ours and not other.flops:
            values["vs_" + against + ("_bf16" if problem.encoded else "")] = ratio
    spread = (max(contestant.milliseconds) - min(contestant.milliseconds)) / median
    return found | {"real_time": median, "FLOPS": (contestant.flops or flops) / (median * 1e-3), "rounds": len(contestant.milliseconds),
                    "launches": contestant.launches, "spread": spread} | values


def ratios_of(found):
    """An entry's, in words for a terminal."""
    return "".join(f"  {key[3:]} x{value:.3f}" for key, value in found.items() if key.startswith(("vs_", "of_")))


# ---- the program -------------------------------------------------------------------------------------------------------------------


def context(library):
    """What the result file says of the machine."""
    asked = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit",
                            "--format=csv,noheader"], capture_output=True, text=True)
    found = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": "gpu",
             "gpu": torch.cuda.get_device_name(), "runtime": f"CUDA {torch.version.cuda}", "toolkit": library.toolkit(),
             "pytorch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "commit": results.commit()}
    if asked.returncode == 0:
        driver, sm, memory, power = asked.stdout.splitlines()[0].split(", ")
        found |= {"driver": driver, "clocks": f"SM up to {sm}, memory {memory}, power limit {power.replace('.00 ', ' ')}"}
    return found | {f"ch{chapter.number:02}": chapter.title.decode() for chapter in library.chapters()}


def whole_numbers(text):
    """[512, 4096] of "512,4k"."""
    return [int(word[:-1]) * 1024 if word[-1:] in "kK" and word else int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", action="store_true", help="chapter 5's last step and its switches, without peers")
    parser.add_argument("--cpu", action="store_true", help="chapter 2's last step and PyTorch on the CPU: bench/on_cpu.py has its options")
    parser.add_argument("--library", type=pathlib.Path, help="default: build/gpu/lib/libflashbook.so, or libablation.so beside it")
    parser.add_argument("--chapter", type=whole_numbers, help="chapters, such as 1,3 (default: the last one on a GPU)")
    parser.add_argument("--step", type=lambda text: text if text == "all" else whole_numbers(text),
                        help="steps of these chapters, or all (default: the last one)")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {','.join(PEERS)} (default: all)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--head-dim", type=whole_numbers, default=[64, 128, 256])
    parser.add_argument("--mask", default="full,causal")
    parser.add_argument("--seqlen", type=whole_numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="write here instead of bench/results/<gpu>/")
    options = parser.parse_args()
    options.peers, options.mask = [] if options.ablation else options.peers.split(","), options.mask.split(",")
    target = "ablation" if options.ablation else "flashbook"
    options.library = options.library or results.ROOT / "build" / "gpu" / "lib" / f"lib{target}.so"
    if options.rounds < 1:
        parser.error("--rounds is the number of rounds: at least 1, and 5 for a result")
    for given, known, option in ((options.peers, PEERS, "--peers"), (options.mask, ("full", "causal"), "--mask")):
        if not set(given) <= set(known):
            parser.error(f"{option} takes {','.join(known)}, with commas between")
    return options


def pick_ours(library, options):
    """[(chapter, step)] of the command line."""
    on_device = {chapter.number: chapter for chapter in library.chapters() if chapter.on_device}
    for number in options.chapter or []:
        if number not in on_device:
            raise results.Refused(f"chapter {number} has no kernel: give some of {', '.join(map(str, on_device))}")
    last = {number: chapter.steps for number, chapter in on_device.items()}
    asked = options.step or ("all" if options.ablation else None)
    steps_of = lambda number: range(1, last[number] + 1) if asked == "all" else asked or [last[number]]
    return [(number, step) for number in options.chapter or [max(on_device)] for step in steps_of(number)]


def run(options, library):
    """Measures every cell; the file is whole after each."""
    chosen = pick_ours(library, options)
    whole = {"context": context(library), "benchmarks": []}
    shuffle = random.Random(SEED).shuffle
    cache_filler = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)  # 256 MB: several times any L2 cache
    for head_dim in options.head_dim:
        for mask in options.mask:
            for seqlen in options.seqlen:
                problem = make_problem(options.dtype, head_dim, mask == "causal", seqlen)
                contestants = [ours(library, chapter, step, problem, options.ablation) for chapter, step in chosen]
                contestants += [peer(who, problem) for who in options.peers]
                check(problem, contestants)
                race(contestants, options.rounds, shuffle, cache_filler)
                flops = library.cost(*chosen[0], problem.shape)[0]
                for contestant in contestants:
                    found = entry(problem, contestant, contestants, flops)
                    whole["benchmarks"].append(found)
                    print(f"{found['name']:44}", (contestant.skipped and f"skipped: {contestant.skipped}") or
                          f"{found['real_time']:9.3f} ms {found['FLOPS'] / 1e12:8.1f} TFLOP/s{ratios_of(found)}", flush=True)
                options.out.write_text(json.dumps(whole, indent=1) + "\n")
                del problem, contestants
                torch.cuda.empty_cache()


def pytorch(program):
    """PyTorch, if it is here and sees a GPU; else None, and stderr says why."""
    global torch  # noqa: PLW0603
    try:
        import torch
    except ImportError:
        print(f"{program} needs PyTorch with CUDA (pip install torch); without it, bench/forward times our kernels alone", file=sys.stderr)
        return None
    if not torch.cuda.is_available():
        print(f"no GPU: {program} times kernels on one; PyTorch sees none here", file=sys.stderr)
        return None
    return torch


def measure(program, options, run, target="flashbook_shared"):
    """Runs `run(options, library)`, which writes options.out, and files that if the user did not name it. Returns the exit code."""
    if not options.library.exists():
        print(f"{options.library} is missing: cmake --build --preset gpu --target {target}", file=sys.stderr)
        return 2
    return filed(program, options, lambda: run(options, Library(options.library)))


def filed(program, options, run):
    """Runs `run()`, which writes options.out, and files that if the user did not name it. Returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            keep = options.out
            options.out = keep or pathlib.Path(folder) / "measured.json"
            run()
            print(keep or results.add(options.out))
    except Wrong as reason:
        print(f"{program}: wrong: {reason}", file=sys.stderr)
        return 1
    except results.Refused as reason:
        print(f"{program}: {reason}", file=sys.stderr)
        return 2
    return 0


def main():
    if "--cpu" in sys.argv[1:]:
        from bench import on_cpu  # takes this file's parts

        return on_cpu.main([word for word in sys.argv[1:] if word != "--cpu"])
    options = parse()
    if pytorch("peers.py") is None:
        return 77
    return measure("peers.py", options, run, "ablation" if options.ablation else "flashbook_shared")


if __name__ == "__main__":
    sys.exit(main())
