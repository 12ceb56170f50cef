#!/usr/bin/env python3
"""Trains a small GPT on the bytes of this book, with Flashbook's attention and with PyTorch's in turn, and lets it write.

    train_text.py [--steps 600] [--batch 16] [--length 2048] [--eager] [--out FILE]

Two copies of one model see the same batches; one attends by flashbook.flash_attn_func, the other by scaled_dot_product_attention. They take turns,
20 steps each, so that neither has a cooler card. Kernels round in different orders, and training carries a difference of one bit on. So
there are two copies more, which say how far two runs come apart anyhow: the first model again, and one whose scaled_dot_product_attention is
cuDNN's. They train on a second GPU meanwhile, if there is one, else afterwards. Then the first model writes with a KV cache twice, by
flash_attn_with_kvcache and by PyTorch, from the same seed. --out gets a result file: tokens a second, loss curves, how far they are apart, and
at which byte the two texts part. Without a GPU two tiny copies take a few steps on the CPU, where kernels run in the simulator (if the
library is built for that).

--eager lets a third copy take turns, whose attention is written out: products, a mask, a softmax, with S and P in memory. So what a fused
kernel is worth to a model is seen, in time and in memory at the peak. By length, with as many tokens a step:

    for length in 512 1024 2048 4096; do
        train_text.py --eager --steps 100 --length $length --batch $((32768 / length)) --out train_$length.json
    done

If it finds no room in its first turn it leaves, and the file says so.
"""

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flashbook import _library, flash_attn_func, flash_attn_with_kvcache

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".cuh", ".cu", ".h", ".cpp", ".py", ".txt"}
TURN = 20  # steps
MODELS, COPIES = ("flashbook", "sdpa"), ("flashbook_again", "cudnn")


def corpus() -> torch.Tensor:
    """The book's text and sources, one after another."""
    left_out = {"build", ".git", "results"}
    files = sorted(path for path in ROOT.rglob("*") if path.suffix in SUFFIXES and not left_out & set(path.relative_to(ROOT).parts))
    return torch.frombuffer(bytearray(b"\n\n".join(path.read_bytes() for path in files)), dtype=torch.uint8)


class Attention(nn.Module):
    """Causal attention with rotated positions; `kernel` is "flashbook", "sdpa", "cudnn" or "eager"."""

    def __init__(self, width: int, heads: int, kernel: str) -> None:
        super().__init__()
        self.heads, self.kernel = heads, kernel
        self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor] | None, place: int) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, self.heads, -1).unbind(2)  # [batch, length, heads, head_dim]
        q, k = rotated(q, angles), rotated(k, angles)
        if cache is None:
            o = flash_attn_func(q, k, v, causal=True) if self.kernel == "flashbook" else self.by_pytorch(q, k, v, True)
        elif self.kernel == "flashbook":
            o = flash_attn_with_kvcache(q, *cache, k, v, cache_seqlens=place, causal=True)
        else:
            for old, new in zip(cache, (k, v)):
                old[:, place:place + length] = new
            keys, values = (old[:, :place + length] for old in cache)
            o = self.by_pytorch(q, keys, values, length > 1)
        return self.out(o.reshape(batch, length, width))

    def by_pytorch(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        if self.kernel == "eager":
            return written_out(q, k, v, causal).transpose(1, 2)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if self.kernel == "cudnn" else contextlib.nullcontext():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention, each operation a call of its own; [batch, heads, length, head_dim], as many queries as keys where it is causal."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1).to(v.dtype) @ v


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary positions; angles is [length, head_dim / 2]."""
    a, b = x.float().chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, kernel: str) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, kernel)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))

    def forward(self, x: torch.Tensor, angles: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor] | None, place: int) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), angles, cache, place)
        return x + self.feed(self.norms[1](x))


class Gpt(nn.Module):
    """A decoder over bytes."""

    def __init__(self, width: int, heads: int, layers: int, kernel: str) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.tokens, self.head, self.norm = nn.Embedding(256, width), nn.Linear(width, 256, bias=False), nn.RMSNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads, kernel) for _ in range(layers))
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if name.endswith(("out.weight", "feed.2.weight")) else 0.02)

    def forward(self, tokens: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]] | None = None, place: int = 0) -> torch.Tensor:
        places = torch.arange(place, place + tokens.shape[1], device=tokens.device)
        angles = places[:, None] * 10000 ** (-torch.arange(0, self.head_dim, 2, device=tokens.device) / self.head_dim)
        x = self.tokens(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, angles, caches[i] if caches else None, place)
        return self.head(self.norm(x))

    @torch.no_grad()
    def write(self, start: bytes, count: int, kernel: str, seed: int) -> bytes:
        """`count` bytes after `start`, drawn at temperature 0.8, with a cache."""
        device = self.head.weight.device
        for block in self.blocks:
            block.attention.kernel = kernel
        generator = torch.Generator(device).manual_seed(seed)
        room = lambda: torch.zeros(1, self.heads, len(start) + count, self.head_dim, device=device, dtype=torch.bfloat16).transpose(1, 2)
        caches = [(room(), room()) for _ in self.blocks]  # a head's rows lie side by side
        written, tokens, place = bytearray(), torch.tensor([list(start)], device=device), 0
        for _ in range(count):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits = self(tokens, caches, place)[0, -1].float()
            place += tokens.shape[1]
            tokens = torch.multinomial((logits / 0.8).softmax(-1), 1, generator=generator)[None]
            written.append(int(tokens))
        return bytes(written)


def parameters(model: Gpt) -> int:
    return sum(weight.numel() for weight in model.parameters())


Numbers = dict[str, list[float]]


def train(options: argparse.Namespace, device: torch.device, names: tuple[str, ...]) -> tuple[dict[str, Gpt], Numbers, Numbers, Numbers]:
    """The models, their losses, the seconds of a step by turns, and the GB that turns took at the peak beyond what was there before."""
    width, heads, layers = (512, 8, 8) if device.type == "cuda" else (128, 2, 1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    text = corpus().to(device)
    models, optimizers = {}, {}
    for kernel in names:
        torch.manual_seed(1)
        models[kernel] = Gpt(width, heads, layers, kernel.removesuffix("_again")).to(device)
        optimizers[kernel] = torch.optim.AdamW(models[kernel].parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    print(f"{parameters(models[names[0]]) / 1e6:.1f} M parameters, {len(text) / 1e6:.1f} MB of text", file=sys.stderr)
    generator = torch.Generator().manual_seed(2)
    losses: dict[str, list[torch.Tensor]] = {kernel: [] for kernel in models}
    seconds: Numbers = {kernel: [] for kernel in models}
    peaks: Numbers = {kernel: [] for kernel in models}
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for turn in range(0, options.steps, TURN):
        count = min(TURN, options.steps - turn)
        first = torch.randint(len(text) - options.length - 1, (count, options.batch), generator=generator).to(device)
        for kernel in sorted(models, reverse=bool(turn // TURN % 2)):
            wait()
            held = 0
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
                held = torch.cuda.memory_allocated(device)
            start = time.perf_counter()
            try:
                for i in range(count):
                    rate = 6e-4 * min(1, (turn + i + 1) / 50) * (1 - 0.9 * (turn + i) / options.steps)
                    for group in optimizers[kernel].param_groups:
                        group["lr"] = rate
                    batch = text[first[i][:, None] + torch.arange(options.length + 1, device=device)].long()
                    with torch.autocast(device.type, dtype=torch.bfloat16):
                        loss = F.cross_entropy(models[kernel](batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())
                    optimizers[kernel].zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(models[kernel].parameters(), 1.0)
                    optimizers[kernel].step()
                    losses[kernel].append(loss.detach())
                wait()
            except torch.cuda.OutOfMemoryError:
                if kernel != "eager" or turn:
                    raise
                print(f"{kernel}: out of memory", file=sys.stderr, flush=True)
                del models[kernel], optimizers[kernel]
                losses[kernel].clear()
            if kernel not in models:  # it found no room
                torch.cuda.empty_cache()
                continue
            seconds[kernel].append((time.perf_counter() - start) / count)
            if device.type == "cuda":
                peaks[kernel].append((torch.cuda.max_memory_allocated(device) - held) / 1e9)
        print(f"step {turn + count}", *(f"{kernel} {losses[kernel][-1].item():.4f}" for kernel in models), file=sys.stderr, flush=True)
    return models, {kernel: [loss.item() for loss in of] for kernel, of in losses.items()}, seconds, peaks


def train_copies(options: argparse.Namespace, device: torch.device) -> tuple[Numbers, Numbers, Numbers]:
    return train(options, device, COPIES)[1:]


def train_all(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Gpt], Numbers, Numbers, Numbers]:
    """As train: the models that take turns, and losses, seconds and peaks of the copies, too."""
    names = (*MODELS, "eager") if options.eager else MODELS
    if device.type == "cpu":
        return train(options, device, names)
    if torch.cuda.device_count() == 1:
        models, *numbers = train(options, device, names)
        copies = train_copies(options, device)
    else:  # in a process of its own, so that the two do not wait for one interpreter
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            others = pool.submit(train_copies, options, torch.device("cuda", 1))
            models, *numbers = train(options, device, names)
            copies = others.result()
    losses, seconds, peaks = (ours | theirs for ours, theirs in zip(numbers, copies))
    return models, losses, seconds, peaks


def name_of(kernel: str, head_dim: int, options: argparse.Namespace) -> str:
    """A result's name, as bench/names.py reads it; what took turns with eager has one of its own."""
    beside = "_beside_eager" if options.eager and kernel != "eager" else ""
    return f"training/{kernel}{beside}/bf16/d{head_dim}/causal/n{options.length}"


def apart(losses: Numbers, one: str, other: str) -> dict[str, float]:
    """How far two curves are apart: at most, and on average."""
    found = [abs(a - b) for a, b in zip(losses[one], losses[other])]
    return {f"most_apart_{other}": max(found), f"mean_apart_{other}": statistics.fmean(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int, help="bytes of a sequence")
    parser.add_argument("--write", type=int, help="bytes")
    parser.add_argument("--eager", action="store_true", help="a third model takes turns, with attention written out")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.out and not torch.cuda.is_available():
        parser.error("--out is for a GPU: there is none here")
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    for name, of_gpu, of_cpu in (("steps", 600, 2), ("batch", 16, 1), ("length", 2048, 64), ("write", 400, 8)):
        if getattr(options, name) is None:
            setattr(options, name, of_gpu if device.type == "cuda" else of_cpu)
    models, losses, seconds, peaks = train_all(options, device)
    full = [kernel for kernel in losses if not losses[kernel]]  # out of memory
    losses = {kernel: of for kernel, of in losses.items() if of}
    texts = {kernel: models["flashbook"].write(b"The running maximum ", options.write, kernel, 3) for kernel in MODELS}
    parted = next((i for i, (a, b) in enumerate(zip(*texts.values())) if a != b), options.write)
    tail = max(1, options.steps // 20)
    rows = []
    for kernel in losses:
        median = statistics.median(seconds[kernel][1:] or seconds[kernel])  # the first turn loads kernels
        row = {"tokens_per_second": options.batch * options.length / median, "steps": options.steps, "batch": options.batch,
               "train_seconds": TURN * sum(seconds[kernel]), "last_loss": statistics.fmean(losses[kernel][-tail:]),
               "parted_at": parted, "written": options.write, "parameters": parameters(models["sdpa"]), "text_bytes": len(corpus())}
        if peaks[kernel]:
            row["peak_gbytes"] = statistics.median(peaks[kernel][1:] or peaks[kernel])
        for other in losses:
            if other != kernel:
                row |= apart(losses, kernel, other)
        row |= {f"loss_{i:05}": losses[kernel][i] for i in range(0, options.steps, max(1, options.steps // 100))}
        name = name_of(kernel, models["sdpa"].head_dim, options)
        rows.append({"name": name, "run_name": name, "run_type": "iteration", "iterations": options.steps, "real_time": median * 1e3, "cpu_time": 0.0,
                     "time_unit": "ms", "label": kernel} | row)
        print(f"{name}: {row['tokens_per_second']:.0f} tokens/s, loss {row['last_loss']:.4f}")
    for kernel in full:
        name = name_of(kernel, models["sdpa"].head_dim, options)
        rows.append({"name": name, "run_name": name, "run_type": "iteration", "iterations": 0, "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ms",
                     "label": kernel, "error_occurred": True, "error_message": f"out of memory with {options.batch} sequences of {options.length}"})
        print(f"{name}: out of memory")
    for place, one in enumerate(losses):
        for other in list(losses)[place + 1:]:
            print(f"losses of {one} and {other} differ by at most {rows[place][f'most_apart_{other}']:.4f}, on average "
                  f"{rows[place][f'mean_apart_{other}']:.4f}")
    print(f"the texts part at byte {parted} of {options.write}")
    print(texts["flashbook"].decode(errors="replace"))
    if options.out:  # a result file of the book says on what it was measured
        sys.path.insert(0, str(ROOT))
        from bench import race

        race.torch = torch
        context = race.context(race.Library(_library.path())) | {"written": texts["flashbook"].decode(errors="replace")}
        options.out.write_text(json.dumps({"context": context, "benchmarks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
