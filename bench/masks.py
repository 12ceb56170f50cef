#!/usr/bin/env python3
"""Times masks, interleaved: chapter 9's steps, chapter 5's last step if it supports the mask, PyTorch's FlexAttention, varlen_attn,
FlashAttention-2's windows and dense masks, and FlashAttention-3's package if it is installed.

    masks.py [--mask causal,window,...] [--step dense,varlen,...] [--peers flex,varlen,flash2,...] [--rounds 5] [--out FILE]
             [--layout bhsd,bshd] [--library FILE]
    masks.py --backward [...]   our gradient and that of FlexAttention; backward_bias: including the gradient of the bias

bench/race.py documents the method. FLOPS counts visible pairs, and `executed` is their fraction of all pairs in the tiles that our kernel
multiplies. FlexAttention's block mask is made beforehand, in `making` milliseconds. Step 4 uses intervals per key for windows and documents, step
1 a byte per pair for four masks. window128 and the like are causal windows of other widths, run only with step 3; wide and wide_causal have keys of
192 columns and values of 128, and cuDNN as another peer. Ours is checked against float64 attention first; a peer that cannot run is reported, and
the others continue. With --backward only the gradient is timed, with the forward pass's
results made beforehand, and FLOPs are 2.5 times those of the forward pass.
"""

import argparse
import dataclasses
import functools
import importlib
import inspect
import math
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/masks.py finds the packages

from bench import packages, peers, race
from bench.names import Name
from bench.race import SEED, Contestant
from bench.structs import Gradients, Shape, Tensors, feature, pointers_to

CHAPTER, HEAD_DIM, HEADS, LENGTH = 9, 128, 16, 8192
PAIRS, PACKED, RANGES, COLUMNS, FUNCTIONS, GRADIENT = "dense", "varlen", "ranges", "flashmask", "mask_functions", "backward"  # steps
WINDOW, PREFIX, SOFTCAP, REACH, DROPOUT = 1024, 2048, 30.0, 128, 0.1
PEERS = ("flex", "varlen", "flash2", "fa3", "dense", "cudnn")
LENGTHS = (1000, 37, 4096, 1, 2047, 512, 300, 8391)  # packed
WIDTHS = {f"window{keys}": keys for keys in (128, 256, 512, 2048, 4096)}  # in addition to WINDOW
AS_PAIRS = ("causal", "window", "documents", "prefix")  # also timed as masks in memory, with a byte per pair
WIDE, WIDE_KEY, WIDE_VALUE = ("wide", "wide_causal"), 192, 128  # without a mask, and under a causal one
MASKS = ("full", "causal", "window", "documents", "prefix", "softcap", "alibi", "bias", "dropout", "lengths", *WIDTHS, *WIDE)
torch: Any = None


@dataclasses.dataclass
class Problem:
    """A problem: Q, K and V with a mask."""

    word: str
    shape: Shape
    features: list[Any]  # its mask in the C interface
    q: Any
    k: Any
    v: Any
    visible: Any  # [seqlen, seqlen], on the device
    lengths: tuple[int, ...] = ()
    slopes: Any = None  # [heads]
    bias: Any = None  # [heads, 2 * REACH + 1]
    columns: list[Any] | None = None  # the same mask as intervals per key
    pairs: list[Any] | None = None  # the same mask with a byte per pair
    keeps: Any = ()
    encoded: tuple[()] = ()  # not quantised
    d_o: Any = None  # given for gradients
    layout: str = race.LAYOUTS[0]

    def name(self, contestant):
        return str(Name("masked", contestant.who, "bf16", self.shape.head_dim, race.in_layout(self.word, self.layout), self.shape.seqlen_q))

    def flops(self):
        pairs = self.visible.sum().item() if self.word not in ("causal", "wide_causal") else self.shape.seqlen_q**2 / 2
        return 2 * (self.q.shape[3] + self.v.shape[3]) * pairs * self.shape.heads * self.shape.batch

    def executed(self, step, rows=128, keys=128):
        """Returns the visible fraction of the pairs that a step multiplies. Each packed sequence has its own tiles."""
        n = self.shape.seqlen_q
        if self.word == "lengths" and step in (PACKED, GRADIENT):  # causal: a tile of queries sees keys up to its last query
            tiles = sum(-(-min(first + rows, length) // keys) for length in self.lengths for first in range(0, length, rows))
            return self.visible.sum().item() / (tiles * rows * keys)
        padded = torch.zeros(-(-n // rows) * rows, -(-n // keys) * keys, device="cuda", dtype=torch.bool)
        padded[:n, :n] = self.visible
        tiles = padded.view(padded.shape[0] // rows, rows, -1, keys).any(3).any(1)
        return self.visible.sum().item() / ((math.prod(tiles.shape) if step == PAIRS else tiles.sum().item()) * rows * keys)


def make_problem(word, layout=race.LAYOUTS[0]):
    torch.manual_seed(SEED)
    lengths = LENGTHS if word == "lengths" else (LENGTH // 8,) * 8 if word == "documents" else ()
    batch, n = (1, sum(LENGTHS)) if word == "lengths" else (2, LENGTH)
    dims = (WIDE_KEY, WIDE_KEY, WIDE_VALUE) if word in WIDE else (HEAD_DIM,) * 3
    shape = Shape(batch, HEADS, HEADS, n, n, dims[0], 0, peers.DTYPES["bf16"], 1 / math.sqrt(dims[0]), value_dim=dims[2])
    q, k, v = (race.randn(layout, batch, HEADS, n, columns, torch.bfloat16) for columns in dims)
    if layout != race.LAYOUTS[0]:
        race.set_strides(shape, q=q, k=k, v=v, o=v)
    row, column = torch.arange(n, device="cuda")[:, None], torch.arange(n, device="cuda")[None]
    is_full = word in ("full", "softcap", "wide")
    window = feature("Window", left=-1, right=-1 if is_full else 0)
    visible = torch.ones(n, n, device="cuda", dtype=torch.bool) if is_full else row >= column
    hidden_from = None  # for each key, the first query that no longer sees it
    found = Problem(word, shape, [window], q, k, v, visible, lengths, layout=layout)
    if word.startswith("window"):
        window.left = width = WIDTHS.get(word, WINDOW)
        found.visible &= row - column <= width
        hidden_from = (torch.arange(n, device="cuda") + width + 1).clamp(max=n)
    if word == "prefix":
        window.prefix = PREFIX
        found.visible |= column < PREFIX
    if word == "softcap":
        found.features.append(feature("Softcap", softcap=SOFTCAP))
    if word == "alibi":
        found.slopes = torch.exp2(-8 * torch.arange(1, HEADS + 1, device="cuda") / HEADS).float()
        found.features.append(feature("Alibi", slopes=found.slopes.data_ptr()))
    if word == "bias":
        found.bias = torch.randn(HEADS, 2 * REACH + 1, device="cuda", dtype=torch.float32)
        found.features.append(feature("Bias", bias=found.bias.data_ptr(), reach=REACH))
    if word == "dropout":
        found.features.append(feature("Dropout", dropout=DROPOUT, seed=SEED))
    if lengths:
        first = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], device="cuda", dtype=torch.int32)
        document = torch.searchsorted(first, torch.arange(n, device="cuda", dtype=torch.int32), right=True)
        found.visible &= document[:, None] == document[None]
        found.features.append(feature("Documents", documents=len(lengths), first_query=first.data_ptr(), first_key=first.data_ptr()))
        found.keeps = (first, document)
        hidden_from = first[document]
    if hidden_from is not None:
        columns = torch.stack([hidden_from.to(torch.int32)] * batch)  # [batch, 1, n, 1]
        found.columns = [feature("Window", left=-1, right=0), feature("Intervals", intervals=columns.data_ptr(), heads=1, bounds=1)]
        found.keeps = (*found.keeps, columns)
    if word in AS_PAIRS:
        pairs = torch.stack([found.visible.to(torch.uint8)] * batch)  # [batch, 1, n, n]
        found.pairs = [feature("Pairs", pairs=pairs.data_ptr(), heads=1)]
        found.keeps = (*found.keeps, pairs)
    return found


# ---- contestants -------------------------------------------------------------------------------------------------------------------


def ours(library, slug, problem):
    step = library.step(CHAPTER, slug)
    found = Contestant(f"ch{CHAPTER:02}/{slug}", library.step_name(CHAPTER, step), None, kind="masked")
    features = {PAIRS: problem.pairs, COLUMNS: problem.columns}.get(slug, problem.features)
    if features is None:
        found.skipped = f"has no {'pairs' if slug == PAIRS else 'intervals'}, and is {RANGES} without them"
        return found
    given = problem.shape.described(*features)
    size = library.workspace_bytes(CHAPTER, step, given)
    if size < 0:
        found.skipped = library.error()
        return found
    o = torch.full_like(problem.v, float("nan"))
    lse = torch.full(o.shape[:3], float("nan"), device="cuda", dtype=torch.float32)
    workspace = torch.zeros(size, device="cuda", dtype=torch.uint8)
    tensors = pointers_to(Tensors, problem.q, problem.k, problem.v, o, lse, workspace)
    found.values = {"workspace_bytes": size, "executed": problem.executed(slug)}

    def run():
        library.attention(CHAPTER, step, given, tensors)
        return o

    found.run, found.keeps = run, (lse, workspace)
    return found


def unmasked(library, problem):
    """Returns chapter 5's last step, which supports full and causal masks. It treats documents of equal lengths as
    heads with their own keys."""
    whole, causal = problem.shape, int(problem.word != "full")
    documents = len(problem.lengths) or 1
    heads, length = HEADS * documents, whole.seqlen_q // documents
    shape = Shape(whole.batch, heads, heads, length, length, HEAD_DIM, causal, whole.dtype, whole.scale)
    q, k, v = (tensor.view(whole.batch, heads, length, HEAD_DIM) for tensor in (problem.q, problem.k, problem.v))
    if problem.layout != race.LAYOUTS[0]:
        race.set_strides(shape, q=q, k=k, v=v, o=q)
    found = peers.ours(library, 5, 5, peers.Problem(shape, "bf16", q, k, v))
    return dataclasses.replace(found, kind="masked", run=lambda: found.run().view(problem.q.shape))


def flex(problem):
    """Returns FlexAttention, compiled, with its block mask made beforehand."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    word, n = problem.word, problem.shape.seqlen_q
    document = problem.keeps[1] if problem.lengths else [0]
    masks = {"causal": lambda b, h, q, k: q >= k,
             "window": lambda b, h, q, k: (q >= k) & (q - k <= WINDOW),
             "prefix": lambda b, h, q, k: (q >= k) | (k < PREFIX),
             "documents": lambda b, h, q, k: (q >= k) & (document[q] == document[k])}
    masks |= {"alibi": masks["causal"], "bias": masks["causal"], "lengths": masks["documents"]}
    slopes, bias = problem.slopes, problem.bias
    scores = {"softcap": lambda score, b, h, q, k: SOFTCAP * torch.tanh(score / SOFTCAP),
              "alibi": lambda score, b, h, q, k: score - slopes[h] * (q - k),
              "bias": lambda score, b, h, q, k: score + bias[h, (k - q).clamp(-REACH, REACH) + REACH]}
    values = {}
    block_mask = None
    if word in masks:
        make = lambda: create_block_mask(masks[word], None, None, n, n, device="cuda")
        make()
        torch.cuda.synchronize()
        start = time.perf_counter()
        block_mask = make()
        torch.cuda.synchronize()
        values["making"] = time.perf_counter() - start
    torch._dynamo.reset()  # each mask is compiled separately, and after eight PyTorch would stop compiling
    compiled = torch.compile(flex_attention, dynamic=False)
    run = lambda: compiled(problem.q, problem.k, problem.v, score_mod=scores.get(word), block_mask=block_mask, scale=problem.shape.scale)
    return Contestant("flex", "FlexAttention, compiled", run, values=values, kind="masked")


def varlen(problem):
    """Returns PyTorch's FlashAttention-2 on packed sequences, causal."""
    from torch.nn.attention.varlen import varlen_attn

    packed = lambda tensor: tensor.transpose(1, 2).reshape(-1, HEADS, HEAD_DIM).contiguous()
    q, k, v = packed(problem.q), packed(problem.k), packed(problem.v)
    lengths = problem.lengths * problem.shape.batch
    first = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], device="cuda", dtype=torch.int32)
    longest = max(lengths)

    # Later versions specify a causal mask as a window.
    causal = {"is_causal": True} if "is_causal" in inspect.signature(varlen_attn).parameters else {"window_size": (-1, 0)}

    def run():
        o = varlen_attn(q, k, v, first, first, longest, longest, **causal)
        return o.view(problem.shape.batch, -1, HEADS, HEAD_DIM).transpose(1, 2)

    return Contestant("varlen", "varlen_attn", run, kind="masked")


def flash2(problem):
    """Returns PyTorch's FlashAttention-2, with its window."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (problem.q, problem.k, problem.v))
    n, window = problem.shape.seqlen_q, {"window_size_left": WINDOW, "window_size_right": 0} if problem.word == "window" else {}

    def run():
        o = torch.ops.aten._flash_attention_forward(q, k, v, None, None, n, n, 0.0, problem.word != "full", False,
                                                    scale=problem.shape.scale, **window)[0]
        return o.transpose(1, 2)

    return Contestant("flash2", "FlashAttention-2, its window", run, kind="masked")


def fa3(problem):
    """Returns FlashAttention-3's own kernels."""
    lacking = packages.absent("fa3", "masked")
    if lacking:
        return lacking
    attend = packages.flash_attn_func("fa3")
    options: dict[str, dict[str, Any]] = {"window": {"window_size": (WINDOW, 0)}, "softcap": {"softcap": SOFTCAP}}
    mask_options = {"causal": problem.word not in ("full", "softcap", "wide")} | options.get(problem.word, {})

    def run():
        o = attend(*packages.turned(problem.q, problem.k, problem.v), softmax_scale=problem.shape.scale, **mask_options)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

    return Contestant("fa3", packages.PACKAGES["fa3"].label, run, kind="masked")


def dense(problem):
    """Returns PyTorch's memory-efficient attention with a mask per pair."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    run = lambda: torch.nn.functional.scaled_dot_product_attention(problem.q, problem.k, problem.v, attn_mask=problem.visible,
                                                                   scale=problem.shape.scale)
    return Contestant("dense", "EFFICIENT_ATTENTION, attn_mask", run, context=lambda: sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
                      kind="masked")


def cudnn(problem):
    """Returns cuDNN's attention, through PyTorch."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    run = lambda: torch.nn.functional.scaled_dot_product_attention(problem.q, problem.k, problem.v, is_causal=problem.word == "wide_causal",
                                                                   scale=problem.shape.scale)
    return Contestant("cudnn", "CUDNN_ATTENTION", run, context=lambda: sdpa_kernel(SDPBackend.CUDNN_ATTENTION), kind="masked")


# ---- gradients ---------------------------------------------------------------------------------------------------------------------


def our_gradient(library, problem, learns=False):
    """Returns step 6, from the O and the log-sum-exp of our forward pass. `learns`: including the gradient of the
    bias."""
    step = library.step(CHAPTER, GRADIENT)
    found = Contestant(f"ch{CHAPTER:02}/{GRADIENT}" + "_bias" * learns, library.step_name(CHAPTER, step), None, kind="masked")
    forward = ours(library, PACKED if problem.word == "lengths" else RANGES if problem.word in WIDE else FUNCTIONS, problem)
    shape, gradients = dataclasses.replace(problem.shape), [torch.full_like(tensor, float("nan")) for tensor in (problem.q, problem.k, problem.v)]
    if problem.layout != race.LAYOUTS[0]:
        race.set_strides(shape, **dict(zip(("d_o", "dq", "dk", "dv"), (d_o_of(problem), *gradients))))
    given = shape.described(*problem.features)
    size = library.workspace_bytes(CHAPTER, step, given)
    if forward.skipped or size < 0:
        found.skipped = forward.skipped or library.error()
        return found
    o, lse = forward.run(), forward.keeps[0]
    workspace = torch.empty(size, device="cuda", dtype=torch.uint8)
    tensors, pointers = pointers_to(Tensors, problem.q, problem.k, problem.v, o, lse, workspace), pointers_to(Gradients, d_o_of(problem), *gradients)
    if learns:
        gradients.append(torch.full_like(problem.bias, float("nan")))
        pointers.d_bias = gradients[-1].data_ptr()
    found.values = {"workspace_bytes": size, "executed": problem.executed(GRADIENT, rows=64)}

    def run():
        library.backward(CHAPTER, step, given, tensors, pointers)
        return gradients

    found.run, found.keeps = run, (forward, o, lse, workspace, d_o_of(problem))
    return found


def d_o_of(problem):
    """Returns the incoming gradient, the same for all contestants."""
    if problem.d_o is None:
        problem.d_o = torch.randn_like(problem.v)
    return problem.d_o


def gradient_of(make, problem):
    """Returns torch.autograd.grad of a peer, without the forward pass."""
    leaves = [tensor.detach().requires_grad_() for tensor in (problem.q, problem.k, problem.v)]
    found = make(dataclasses.replace(problem, q=leaves[0], k=leaves[1], v=leaves[2]))
    if found.skipped:
        return dataclasses.replace(found, who=f"{found.who}_backward")
    with found.context():
        o = found.run()
    return dataclasses.replace(found, who=f"{found.who}_backward",
                               run=lambda: list(torch.autograd.grad(o, leaves, d_o_of(problem), retain_graph=True)))


def flex_gradient(problem):
    """Returns torch.autograd.grad of FlexAttention, without the forward pass, as in bench/backward.py."""
    config: Any = importlib.import_module("torch._functorch.config")
    config.donated_buffer = False  # else the graph would be freed before the next launch
    return gradient_of(flex, problem)


def gradient_error(problem, gradients):
    """Returns the error and bound of the last head's worst gradient against float64, relative to its bound. The gradient of a bias is summed
    over the batch."""
    last, h, n = problem.shape.batch - 1, problem.shape.heads - 1, problem.shape.seqlen_q
    place = torch.arange(n, device="cuda")
    left = kept(last, h, place, n) if problem.word == "dropout" else None

    def entry_gradient(kind, b):
        q, k, v = (tensor[b, h].detach().to(kind).requires_grad_() for tensor in (problem.q, problem.k, problem.v))
        leaves = [q, k, v]
        scores = (q * problem.shape.scale) @ k.mT
        if problem.word == "softcap":
            scores = SOFTCAP * torch.tanh(scores / SOFTCAP)
        if problem.slopes is not None:
            scores = scores - problem.slopes[h].to(kind) * (place[:, None] - place).abs()
        if problem.bias is not None:
            leaves.append(problem.bias[h].to(torch.promote_types(kind, torch.float32)).requires_grad_())
            scores = scores + leaves[-1][(place - place[:, None]).clamp(-REACH, REACH) + REACH].to(kind)
        p = scores.masked_fill(~problem.visible, -math.inf).softmax(-1)
        if left is not None:
            p = p * left.to(kind)
        return torch.autograd.grad(p @ v, leaves, d_o_of(problem)[b, h].to(kind))

    def exact(kind):
        found = list(entry_gradient(kind, last))
        for b in range(last if len(gradients) > 3 else 0):
            found[3] = found[3] + entry_gradient(kind, b)[3]
        return found

    pairs = []
    one_head = [gradient[last, h] for gradient in gradients[:3]] + [gradient[h] for gradient in gradients[3:]]
    for got, right, plain in zip(one_head, exact(torch.float64), exact(problem.q.dtype), strict=False):
        bound = 2 * (plain.double() - right).abs().max().item() + 2**-7 * right.abs().max().item()
        pairs.append(((got.double() - right).abs().max().item(), bound))
    return max(pairs, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0] / pair[1])


# ---- contestants per mask ----------------------------------------------------------------------------------------------------------


def guarded(who, make, problem):
    """Returns a peer, or the reason why it is missing, such as another version or lack of memory."""
    try:
        return make(problem)
    except Exception as error:
        return Contestant(who, "", None, skipped=(str(error).splitlines() or ["failed"])[0], kind="masked")


def contestants_of(library, options, problem):
    if options.backward and problem.word in WIDE:
        makers = {who: functools.partial(gradient_of, make) for who, make in (("fa3", fa3), ("cudnn", cudnn)) if who in options.peers}
        return [our_gradient(library, problem), *(guarded(f"{who}_backward", make, problem) for who, make in makers.items())]
    if options.backward:
        flex_takes = "flex" in options.peers and problem.word != "dropout"
        found = [our_gradient(library, problem, learns) for learns in ((False, True) if problem.bias is not None else (False,))]
        return found + ([guarded("flex_backward", flex_gradient, problem)] if flex_takes else [])
    if problem.word in WIDTHS:
        return [ours(library, RANGES, problem)]
    if problem.word in WIDE:
        found = [guarded(who, make, problem) for who, make in (("fa3", fa3), ("cudnn", cudnn)) if who in options.peers]
        return [ours(library, RANGES, problem), *found]
    found = [ours(library, step, problem) for step in library.slugs(CHAPTER, options.step)]
    if problem.word in ("full", "causal") or (problem.word == "documents" and problem.layout == "bhsd"):
        found.append(unmasked(library, problem))
    takes = {"flex": (flex, problem.word != "dropout"),
             "varlen": (varlen, bool(problem.lengths)),
             "flash2": (flash2, problem.word in ("full", "causal", "window")),
             "fa3": (fa3, problem.word in ("full", "causal", "window", "softcap")),
             "dense": (dense, problem.word in ("causal", "window", "documents", "prefix")), "cudnn": (cudnn, False)}
    return found + [guarded(who, takes[who][0], problem) for who in options.peers if takes[who][1]]


# ---- checks ------------------------------------------------------------------------------------------------------------------------


def product(factor, words):
    """Returns (upper, lower) 32 bits of products of 32-bit words, which would overflow int64."""
    return (factor * (words >> 16) + (factor * (words & 0xffff) >> 16)) >> 16, factor * words & 0xffffffff


def philox(counter, key):
    """Computes Philox4x32-10 of tensors of four words."""
    for _ in range(10):
        (high_a, low_a), (high_b, low_b) = product(0xd2511f53, counter[0]), product(0xcd9e8d57, counter[2])
        counter = (high_b ^ counter[1] ^ key[0], low_b, high_a ^ counter[3] ^ key[1], low_a)
        key = ((key[0] + 0x9e3779b9) & 0xffffffff, (key[1] + 0xbb67ae85) & 0xffffffff)
    return counter


def kept(b, h, rows, n):
    """Returns dropout's factors for the probabilities of these rows (common/features/dropout/dropout.h), [rows, n]."""
    threshold = round(DROPOUT * 65536)
    words = torch.stack(philox((torch.arange(-(-n // 32) * 4, device="cuda"), rows[:, None], h, b), (SEED & 0xffffffff, SEED >> 32)))
    key = torch.arange(n, device="cuda")  # words: [4, rows, calls]
    bits = words[key // 8 % 4, :, key // 32 * 4 + key % 8 // 2].T >> 16 * (key % 2) & 0xffff
    return 65536 / (65536 - threshold) * (bits >= threshold).double()


def largest_error(problem, o):
    """Returns the largest error of some rows of the first and the last head against float64, and the book's bound."""
    shape, error, plain_error, largest = problem.shape, 0.0, 0.0, 0.0
    n = shape.seqlen_q
    rows = torch.tensor(sorted({0, 1, n // 8 - 1, n // 8, n // 3, n // 2 + 1, n - 8392, n - 8391, n - 1} & set(range(n))), device="cuda")
    for b, h in ((0, 0), (shape.batch - 1, shape.heads - 1)):
        q, k, v, visible = problem.q[b, h][rows], problem.k[b, h], problem.v[b, h], problem.visible[rows]
        distance = torch.arange(n, device="cuda") - rows[:, None]
        left = kept(b, h, rows, n) if problem.word == "dropout" else None

        def attend(q, k, v, visible=visible, h=h, distance=distance, left=left):
            scores = (q * shape.scale) @ k.mT
            if problem.word == "softcap":
                scores = SOFTCAP * torch.tanh(scores / SOFTCAP)
            if problem.slopes is not None:
                scores = scores - problem.slopes[h].to(scores.dtype) * distance.abs()
            if problem.bias is not None:
                scores = scores + problem.bias[h].to(scores.dtype)[distance.clamp(-REACH, REACH) + REACH]
            p = scores.masked_fill(~visible, -math.inf).softmax(-1)
            return (p if left is None else p * left.to(p.dtype)) @ v

        exact = attend(q.double(), k.double(), v.double())
        far = lambda result, exact=exact: (result.double() - exact).abs().max().item()
        plain_error = max(plain_error, far(attend(q, k, v)))
        largest = max(largest, exact.abs().max().item())
        this = far(o[b, h][rows])
        error = this if math.isnan(this) else max(error, this)
    return error, 2 * plain_error + torch.finfo(torch.bfloat16).eps * 2 ** math.floor(math.log2(largest))


# ---- the program -------------------------------------------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=lambda text: text.split(","), default=[PAIRS, PACKED, RANGES, COLUMNS, FUNCTIONS],
                        help="default: the forward steps")
    parser.add_argument("--mask", **race.some_of(MASKS))
    parser.add_argument("--peers", **race.some_of(PEERS))
    parser.add_argument("--backward", action="store_true", help="time gradients, ours and those of peers, in place of forward passes")
    race.add_layout(parser)
    race.add_options(parser)
    options = parser.parse_args()
    if options.backward:
        options.mask = [word for word in options.mask if word not in WIDTHS]
    return options


def cell(options, word, layout, library):
    problem = make_problem(word, layout)
    return problem, contestants_of(library, options, problem), problem.flops() * (2.5 if options.backward else 1)


def run(options, library):
    check = lambda problem, contestants: race.check_outputs(problem, contestants, gradient_error if options.backward else largest_error, 10)
    race.run(options, library, check, {race.in_layout(word, layout): functools.partial(cell, options, word, layout)
                                       for word in options.mask for layout in options.layout})


def main():
    global torch  # noqa: PLW0603
    options = parse()
    torch = peers.torch = race.pytorch("masks.py")
    return 77 if torch is None else race.measure("masks.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
