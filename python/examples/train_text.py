#!/usr/bin/env python3
"""Trains a small GPT on the bytes of this book, alternately with the attention of Flashbook and of PyTorch, and generates text.

    train_text.py [--steps 600] [--batch 16] [--length 2048] [--width 512] [--layers 8] [--eager] [--out FILE]

Two copies of one model see the same batches, one with flashbook.flash_attn_func and one with scaled_dot_product_attention. They take turns of 20
steps, so that neither gets a cooler card. The kernels round in different orders, and training amplifies a difference of one bit. Afterwards two
more copies show how far any two runs drift apart: the first model again, and one whose scaled_dot_product_attention uses cuDNN. Then the first
model generates text with flash_attn_with_kvcache. --out writes a result file: tokens per second, loss curves and the differences between them.
Without a GPU, two tiny copies take a few steps on the CPU, in the simulator if the library was built for it.

--eager trains a third model in turns with the first two, with unfused attention (products, mask and softmax, with S and P in memory), instead of
the extra copies. It shows what a fused kernel is worth to a model, in time and in peak memory. To compare lengths, for a model of GPT-2's size with
the same number of tokens per step:

    for length in 512 1024 2048 4096; do
        train_text.py --eager --width 768 --layers 12 --turn 10 --steps 50 --length $length --batch $((16384 / length)) --out train_$length.json
    done
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import pathlib
import re
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flashbook import flash_attn_func, flash_attn_with_kvcache

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".cuh", ".cu", ".h", ".cpp", ".py", ".txt"}
MODELS, COPIES = ("flashbook", "sdpa"), ("flashbook_again", "cudnn")
SIZE = 512, 8  # width and layers


def corpus() -> torch.Tensor:
    """Returns the book's text and sources, one after another."""
    is_left_out = re.compile(r"build|results|\..*").fullmatch  # hidden folders are not part of the book
    files = sorted(path for path in ROOT.rglob("*") if path.suffix in SUFFIXES and not any(map(is_left_out, path.relative_to(ROOT).parts)))
    return torch.frombuffer(bytearray(b"\n\n".join(path.read_bytes() for path in files)), dtype=torch.uint8)


class Attention(nn.Module):
    """Computes causal attention with rotary positions; `kernel` is "flashbook", "sdpa", "cudnn" or "eager". Only "flashbook" takes a cache."""

    def __init__(self, width: int, heads: int, kernel: str) -> None:
        super().__init__()
        self.heads, self.kernel = heads, kernel
        self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor] | None, place: int) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, self.heads, -1).unbind(2)  # [batch, length, heads, head_dim]
        q, k = rotated(q, angles), rotated(k, angles)
        if cache is not None:
            o = flash_attn_with_kvcache(q, *cache, k, v, cache_seqlens=place, causal=True)
        else:
            o = flash_attn_func(q, k, v, causal=True) if self.kernel == "flashbook" else self.by_pytorch(q, k, v)
        return self.out(o.reshape(batch, length, width))

    def by_pytorch(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        if self.kernel == "eager":
            return written_out(q, k, v).transpose(1, 2)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if self.kernel == "cudnn" else contextlib.nullcontext():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Computes unfused causal attention, [batch, heads, length, head_dim], with as many queries as keys."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1).to(v.dtype) @ v


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Applies rotary positions; angles is [length, head_dim / 2]."""
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
    def write(self, start: bytes, count: int, seed: int) -> bytes:
        """Generates `count` bytes after `start` at temperature 0.8, with a cache."""
        device = self.head.weight.device
        generator = torch.Generator(device).manual_seed(seed)
        room = lambda: torch.zeros(1, self.heads, len(start) + count, self.head_dim, device=device, dtype=torch.bfloat16).transpose(1, 2)
        caches = [(room(), room()) for _ in self.blocks]  # a head's rows are contiguous
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


@dataclasses.dataclass
class Found:
    """Measurements from training, by model."""

    losses: Numbers = dataclasses.field(default_factory=dict)
    seconds: Numbers = dataclasses.field(default_factory=dict)  # seconds per step, by turn
    peaks: Numbers = dataclasses.field(default_factory=dict)  # GB that turns allocated at the peak

    def __or__(self, other: "Found") -> "Found":
        return Found(*(getattr(self, field.name) | getattr(other, field.name) for field in dataclasses.fields(self)))


def timed(device: torch.device, run: Callable[[], object]) -> tuple[float, float]:
    """Returns the seconds, and the GB allocated at the peak (0 on a CPU)."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    held = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
    start = time.perf_counter()
    run()
    wait()
    spent = time.perf_counter() - start
    return spent, (torch.cuda.max_memory_allocated(device) - held) / 1e9 if device.type == "cuda" else 0.0


def shape_of(options: argparse.Namespace) -> tuple[int, int, int]:
    """Returns width, heads and layers."""
    return options.width, max(1, options.width // 64), options.layers


def step(model: Gpt, optimizer: torch.optim.Optimizer, batch: torch.Tensor, rate: float) -> torch.Tensor:
    """Performs one training step; returns the loss."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast(batch.device.type, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def optimizer_of(model: Gpt) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def train(options: argparse.Namespace, device: torch.device, names: tuple[str, ...]) -> tuple[dict[str, Gpt], Found]:
    """Trains the models in turns, and returns them with the measurements."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    text = corpus().to(device)
    models, optimizers = {}, {}
    for kernel in names:
        torch.manual_seed(1)
        models[kernel] = Gpt(*shape_of(options), kernel.removesuffix("_again")).to(device)
        optimizers[kernel] = optimizer_of(models[kernel])
    print(f"{parameters(models[names[0]]) / 1e6:.1f} M parameters, {len(text) / 1e6:.1f} MB of text", file=sys.stderr)
    generator = torch.Generator().manual_seed(2)
    empty: Callable[[], Numbers] = lambda: {kernel: [] for kernel in models}
    found = Found(empty(), empty(), empty())
    for turn in range(0, options.steps, options.turn):
        count = min(options.turn, options.steps - turn)
        first = torch.randint(len(text) - options.length - 1, (count, options.batch), generator=generator).to(device)

        def batch(i: int, first: torch.Tensor = first) -> torch.Tensor:
            return text[first[i][:, None] + torch.arange(options.length + 1, device=device)].long()

        def steps(kernel: str, turn: int = turn, count: int = count) -> None:
            told = [step(models[kernel], optimizers[kernel], batch(i),
                         6e-4 * min(1, (turn + i + 1) / 50) * (1 - 0.9 * (turn + i) / options.steps)) for i in range(count)]
            found.losses[kernel] += [loss.item() for loss in told]

        for kernel in sorted(models, reverse=bool(turn // options.turn % 2)):
            seconds, peak = timed(device, functools.partial(steps, kernel))
            found.seconds[kernel].append(seconds / count)
            found.peaks[kernel].append(peak)
        print(f"step {turn + count}", *(f"{kernel} {of[-1]:.4f}" for kernel, of in found.losses.items()), file=sys.stderr, flush=True)
    return models, found


def train_all(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Gpt], Found]:
    """Returns the models that take turns, and the measurements of all models."""
    if device.type == "cpu" or options.eager:
        return train(options, device, (*MODELS, "eager") if options.eager else MODELS)
    models, found = train(options, device, MODELS)
    return models, found | train(options, device, COPIES)[1]


def name_of(kernel: str, head_dim: int, options: argparse.Namespace) -> str:
    """Returns a result's name, as bench/names.py parses it; runs with --eager and models of other sizes have their own
    names."""
    suffix = "_beside_eager" if options.eager and kernel != "eager" else ""
    size = "" if (options.width, options.layers) == SIZE else f"_w{options.width}l{options.layers}"
    return f"training/{kernel}{suffix}{size}/bf16/d{head_dim}/causal/n{options.length}"


def row_of(name: str, kernel: str, milliseconds: float, options: argparse.Namespace, **values: float) -> dict[str, Any]:
    """Returns a result as Google Benchmark would write it."""
    return {"name": name, "run_name": name, "run_type": "iteration", "iterations": options.steps, "real_time": milliseconds, "cpu_time": 0.0,
            "time_unit": "ms", "label": kernel} | values


def median(turns: list[float]) -> float:
    return statistics.median(turns[1:] or turns)  # the first turn includes loading kernels


def machine() -> dict[str, Any]:
    """Returns a result file's description of the machine; bench/example.py adds to it."""
    return {"gpu": torch.cuda.get_device_name(), "pytorch": torch.__version__}


def apart(losses: Numbers, one: str, other: str) -> dict[str, float]:
    """Returns the largest and the mean difference between two curves."""
    found = [abs(a - b) for a, b in zip(losses[one], losses[other])]
    return {f"most_apart_{other}": max(found), f"mean_apart_{other}": statistics.fmean(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--turn", type=int, default=20, help="steps per turn")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int, help="bytes per sequence")
    parser.add_argument("--width", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--write", type=int, help="bytes")
    parser.add_argument("--eager", action="store_true", help="add a third model with unfused attention")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.out and not torch.cuda.is_available():
        parser.error("--out needs a GPU, and PyTorch sees none")
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    for name, on_gpu, on_cpu in (("steps", 600, 2), ("batch", 16, 1), ("length", 2048, 64), ("width", SIZE[0], 128), ("layers", SIZE[1], 1),
                                 ("write", 400, 8)):
        if getattr(options, name) is None:
            setattr(options, name, on_gpu if device.type == "cuda" else on_cpu)
    models, found = train_all(options, device)
    losses = found.losses
    written = models["flashbook"].write(b"The running maximum ", options.write, 3).decode(errors="replace")
    tail = max(1, options.steps // 20)
    rows = []
    head_dim, tokens = models["sdpa"].head_dim, options.batch * options.length
    for kernel in losses:
        spent = median(found.seconds[kernel])
        row = {"tokens_per_second": tokens / spent, "steps": options.steps, "batch": options.batch,
               "train_seconds": options.turn * sum(found.seconds[kernel]), "last_loss": statistics.fmean(losses[kernel][-tail:]),
               "parameters": parameters(models["sdpa"]), "text_bytes": len(corpus()), "peak_gbytes": median(found.peaks[kernel])}
        for other in losses:
            if other != kernel:
                row |= apart(losses, kernel, other)
        row |= {f"loss_{i:05}": losses[kernel][i] for i in range(0, options.steps, max(1, options.steps // 100))}
        rows.append(row_of(name_of(kernel, head_dim, options), kernel, spent * 1e3, options, **row))
        print(f"{rows[-1]['name']}: {spent * 1e3:.1f} ms, {row['tokens_per_second']:.0f} tokens/s, {row['peak_gbytes']:.1f} GB at the peak, "
              f"loss {row['last_loss']:.4f}")
    for place, one in enumerate(losses):
        for other in list(losses)[place + 1:]:
            print(f"losses of {one} and {other} differ by at most {rows[place][f'most_apart_{other}']:.4f}, on average "
                  f"{rows[place][f'mean_apart_{other}']:.4f}")
    print(written)
    if options.out:
        options.out.write_text(json.dumps({"context": machine() | {"written": written}, "benchmarks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
