#!/usr/bin/env python3
"""Measures what a KV cache is worth in generation: seconds and memory by number of tokens, with a cache and without.

    generation.py [--tokens 100,500,1000,4000] [--ways none,cat,...] [--out FILE] [--library FILE]

A decoder with random weights in BF16, of width 2048, with 16 heads of dimension 128, processes `tokens` tokens one after another. The tokens are
given, so all methods do the same work. The methods to keep keys and values are:

    none        nothing is kept: the whole text is recomputed for each token (only with a batch of 1); SDPA
    none_flash  the same, with SDPA restricted to FlashAttention-2; by default it uses cuDNN's kernel here
    cat         torch.cat of the previous keys and the new one, in each layer, as in transformers' DynamicCache; SDPA
    in_place    tensors allocated for all tokens, written in place; SDPA on a view
    pages       pages of 64 keys; flash_attn_with_kvcache appends and attends

Everything runs in eager mode, without CUDA graphs and the compiler. With few tokens or a small model, the time is dominated by the host's launches.
With a cache and up to 1000 tokens, a time is the better of two runs. First, all methods must give the same logits after 40 tokens, up to rounding.
Names are generation/cat/bf16/d128/b16/n4000, where b16 is the batch. `peak_gbytes` is the peak memory in addition to the weights, `cache_bytes` the
size of keys and values, `vs_none` the speed relative to no cache.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]  # the packages, for python3 bench/generation.py

from bench import race
from bench.names import Name
from bench.race import whole_numbers

HEAD_DIM, PAGE, VOCABULARY = 128, 64, 32000
WIDTH, LAYERS, BATCHES = 2048, 16, (1, 16)
WAYS = ("none", "none_flash", "cat", "in_place", "pages")
CHECKED = 40  # tokens after which all methods must agree
torch: Any = None


class Model:
    """A decoder; `dtype` and `device` apply to all its tensors."""

    def __init__(self, width, layers, device, dtype):
        self.width, self.heads, self.device, self.dtype = width, width // HEAD_DIM, device, dtype
        generator = torch.Generator(device).manual_seed(1)
        made = lambda *sizes: torch.randn(*sizes, device=device, dtype=dtype, generator=generator) * sizes[-1] ** -0.5
        self.embedding, self.head = made(VOCABULARY, width) * width**0.5, made(VOCABULARY, width)
        self.layers = [{"qkv": made(3 * width, width), "out": made(width, width), "up": made(4 * width, width), "down": made(width, 4 * width)}
                       for _ in range(layers)]

    def forward(self, tokens, attend):
        """Returns the logits of the last of tokens [batch, new]; `attend(layer, q, k, v)` takes [batch, new, heads,
        head_dim]."""
        linear, normed = torch.nn.functional.linear, lambda x: torch.nn.functional.rms_norm(x, (self.width,))
        x = self.embedding[tokens]
        for place, layer in enumerate(self.layers):
            q, k, v = linear(normed(x), layer["qkv"]).view(*x.shape[:2], 3, self.heads, HEAD_DIM).unbind(2)
            x = x + linear(attend(place, q, k, v).flatten(2), layer["out"])
            x = x + linear(torch.nn.functional.gelu(linear(normed(x), layer["up"])), layer["down"])
        return linear(normed(x[:, -1]), self.head).float()


def by_sdpa(q, k, v, causal):
    """Calls SDPA with k and v [batch, heads, keys, head_dim]; q and the result have the heads third."""
    return torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=causal).transpose(1, 2)


class Nothing:
    """No cache: gets the whole text each time."""

    whole_text = True

    def __init__(self, model, batch, tokens):
        pass

    def attend(self, layer, q, k, v):
        return by_sdpa(q, k.transpose(1, 2), v.transpose(1, 2), True)

    def bytes(self):
        return 0


class NothingByFlash(Nothing):
    """No cache, as in Nothing, but SDPA may only use FlashAttention-2."""

    def attend(self, layer, q, k, v):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return super().attend(layer, q, k, v)


class Cat:
    """A cache that grows by concatenation."""

    whole_text = False

    def __init__(self, model, batch, tokens):
        self.kept: list[Any] = [None] * len(model.layers)

    def attend(self, layer, q, k, v):
        new = k.transpose(1, 2), v.transpose(1, 2)
        self.kept[layer] = new if self.kept[layer] is None else tuple(torch.cat(pair, 2) for pair in zip(self.kept[layer], new))
        k, v = self.kept[layer]
        return by_sdpa(q, k, v, False)

    def bytes(self):
        return sum(tensor.nbytes for pair in self.kept for tensor in pair)


class InPlace:
    """A cache with room for all tokens."""

    whole_text = False

    def __init__(self, model, batch, tokens):
        self.kept = [torch.empty(2, batch, model.heads, tokens, HEAD_DIM, device=model.device, dtype=model.dtype) for _ in model.layers]
        self.length = [0] * len(model.layers)

    def attend(self, layer, q, k, v):
        kept, place = self.kept[layer], self.length[layer]
        self.length[layer] += 1
        kept[0, :, :, place:place + 1], kept[1, :, :, place:place + 1] = k.transpose(1, 2), v.transpose(1, 2)
        return by_sdpa(q, kept[0, :, :, :place + 1], kept[1, :, :, :place + 1], False)

    def bytes(self):
        return sum(tensor.nbytes for tensor in self.kept)


class Pages:
    """A cache in pages, which are allocated in the order of requests, so that a sequence's pages are scattered."""

    whole_text = False

    def __init__(self, model, batch, tokens):
        from flashbook import flash_attn_with_kvcache

        self.call = flash_attn_with_kvcache
        pages = -(-tokens // PAGE)
        self.table = torch.arange(pages * batch, device=model.device, dtype=torch.int32).view(pages, batch).T.contiguous()
        # [pages, heads, rows, head_dim] in memory: a head's rows are contiguous within a page
        empty = lambda: torch.empty(pages * batch, model.heads, PAGE, HEAD_DIM, device=model.device, dtype=model.dtype).transpose(1, 2)
        self.kept = [(empty(), empty()) for _ in model.layers]
        self.length = [0] * len(model.layers)

    def attend(self, layer, q, k, v):
        place = self.length[layer]
        self.length[layer] += 1
        keys, values = self.kept[layer]
        return self.call(q, keys, values, k, v, cache_seqlens=place, block_table=self.table, causal=True)

    def bytes(self):
        return sum(tensor.nbytes for pair in self.kept for tensor in pair)


CACHES: dict[str, Any] = dict(zip(WAYS, (Nothing, NothingByFlash, Cat, InPlace, Pages)))


def write(model, way, text):
    """Processes the tokens of text [batch, tokens] one after another. Returns the last logits and the cache's size."""
    cache = CACHES[way](model, *text.shape)
    for place in range(text.shape[1]):
        given = text[:, :place + 1] if cache.whole_text else text[:, place:place + 1]
        logits = model.forward(given, cache.attend)
    return logits, cache.bytes()


def check(model, ways, batch):
    """Raises Wrong unless all methods agree with the first."""
    text = tokens_of(model, batch, CHECKED)
    first = write(model, ways[0], text)[0]
    for way in ways[1:]:
        off = ((write(model, way, text)[0] - first).norm() / first.norm()).item()
        print(f"batch {batch}: {way} and {ways[0]} differ by {off:.1e} after {CHECKED} tokens", flush=True)
        if not off < 0.03:  # layers of BF16 on random weights
            raise race.Wrong(f"{way} differs from {ways[0]} by {off:.1e} of the logits' norm")


def tokens_of(model, batch, count):
    return torch.randint(VOCABULARY, (batch, count), device=model.device, generator=torch.Generator(model.device).manual_seed(3))


def timed(model, way, text):
    """Returns the seconds, the peak GB in addition to what was allocated, and bytes of the cache."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    torch.cuda.synchronize()
    start = time.perf_counter()
    _, size = write(model, way, text)
    torch.cuda.synchronize()
    return time.perf_counter() - start, (torch.cuda.max_memory_allocated() - held) / 1e9, size


def run(options, library):
    whole = {"context": race.context(library), "benchmarks": []}
    model = Model(WIDTH, LAYERS, "cuda", torch.bfloat16)
    weights = sum(tensor.numel() for layer in model.layers for tensor in layer.values())
    with torch.no_grad():
        for batch in BATCHES:
            ways = [way for way in options.ways if not CACHES[way].whole_text or batch == 1]
            check(model, ways, batch)
            for count in options.tokens:
                text, seconds = tokens_of(model, batch, count), {}
                for way in ways:
                    runs = [timed(model, way, text) for _ in range(1 if CACHES[way].whole_text or count > 1000 else 2)]
                    seconds[way], peak, size = min(runs)
                    name = str(Name("generation", way, "bf16", HEAD_DIM, f"b{batch}", count))
                    found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": len(runs), "real_time": seconds[way] * 1e3,
                             "cpu_time": 0.0, "time_unit": "ms", "label": way, "seconds": seconds[way], "ms_per_token": seconds[way] / count * 1e3,
                             "peak_gbytes": peak, "cache_bytes": size, "layers": LAYERS, "width": WIDTH, "weights": weights}
                    if "none" in seconds:
                        found["vs_none"] = seconds["none"] / seconds[way]
                    if "cat" in seconds:
                        found["vs_cat"] = seconds["cat"] / seconds[way]
                    whole["benchmarks"].append(found)
                    print(f"{name:42} {seconds[way]:8.3f} s {found['ms_per_token']:7.2f} ms per token {peak:6.2f} GB", flush=True)
                    options.out.write_text(json.dumps(whole, indent=1) + "\n")


def main():
    global torch  # noqa: PLW0603
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=whole_numbers, default=[100, 500, 1000, 4000])
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.set_defaults(before=None, rounds=1, resume=False)
    options = parser.parse_args()
    os.environ["FLASHBOOK_LIBRARY"] = str(options.library or ROOT / "build" / "gpu" / "lib" / "libflashbook.so")
    torch = race.torch = race.pytorch("generation.py")
    return 77 if torch is None else race.measure("generation.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
