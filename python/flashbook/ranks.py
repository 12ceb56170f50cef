"""Attention of a sequence that is divided among the processes of a group: keys and values travel round a ring (chapter 10).

    q, k, v = (flashbook.shard(tensor, group) for tensor in (q, k, v))  # this rank's tokens, if all are here; else load these
    o = flashbook.context_parallel(q, k, v, group, causal=True)
    o = flashbook.unshard(o, group)

Tokens are dealt out in zigzag: of 2 P chunks rank r has chunks r and 2 P - 1 - r, an early and a late one, side by side. Under a causal mask
every rank then has the same to do at every hop, and no hop needs another mask than full or causal: of an earlier rank's keys all queries see
the first half, of a later rank's keys the second half of the queries sees all.

Messages go point to point by torch.distributed, over NCCL or Gloo. Parts are merged in float32; so are the gradients of keys and values, which
travel behind them.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from flashbook import arguments, interface, ops

Group = Any  # a ProcessGroup, or None: all processes


# ---- zigzag ------------------------------------------------------------------------------------------------------------------------


def _chunks(tokens: int, ranks: int) -> int:
    """The length of a chunk."""
    if tokens % (2 * ranks):
        raise ValueError(f"there are {tokens} tokens, which do not make {2 * ranks} equal chunks for {ranks} ranks: pad the sequence at its end, "
                         "where a causal mask lets no query see it")
    return tokens // (2 * ranks)


def shard(tensor: Tensor, group: Group = None, dim: int = 1) -> Tensor:
    """This rank's tokens of a whole tensor, along `dim`, in zigzag."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    chunk = _chunks(tensor.shape[dim], ranks)
    return torch.cat([tensor.narrow(dim, place * chunk, chunk) for place in (rank, 2 * ranks - 1 - rank)], dim)


def unshard(tensor: Tensor, group: Group = None, dim: int = 1) -> Tensor:
    """The whole tensor of all ranks' tokens, along `dim`, on every rank. No gradient goes through it."""
    ranks = dist.get_world_size(group)
    own = tensor.detach().contiguous()
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather([_bytes(part) for part in parts], _bytes(own), group=group)
    halves = [part.chunk(2, dim) for part in parts]
    return torch.cat([half[0] for half in halves] + [half[1] for half in reversed(halves)], dim)


# ---- the ring ----------------------------------------------------------------------------------------------------------------------


def _bytes(tensor: Tensor) -> Tensor:
    """The same memory, of a type that every backend sends."""
    return tensor.view(-1).view(torch.uint8)


class _Ring:
    """This rank's place, and what travels on."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)
        self.next, self.previous = (place if group is None else dist.get_global_rank(group, place)
                                    for place in ((self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks))

    def pass_on(self, tensors: list[Tensor]) -> "_Travelling":
        """Begins to send tensors to the next rank, and to receive as many of the same sizes from the previous one."""
        arriving = [torch.empty_like(tensor) for tensor in tensors]
        messages = [dist.P2POp(dist.isend, _bytes(tensor), self.next, self.group) for tensor in tensors]
        messages += [dist.P2POp(dist.irecv, _bytes(tensor), self.previous, self.group) for tensor in arriving]
        return _Travelling(dist.batch_isend_irecv(messages), arriving, tensors)

    def rows(self, hop: int, causal: bool, chunk: int) -> tuple[slice, slice]:
        """Which queries see which keys of a hop after the first: those of the rank `hop` places before."""
        if not causal:
            return slice(None), slice(None)
        return (slice(None), slice(0, chunk)) if self.rank >= hop else (slice(chunk, None), slice(None))


class _Travelling:
    """Messages on their way."""

    def __init__(self, works: list[Any], arriving: list[Tensor], leaving: list[Tensor]) -> None:
        self.works, self.arriving, self.leaving = works, arriving, leaving  # nobody takes their memory before they have left

    def arrived(self) -> list[Tensor]:
        for work in self.works:
            work.wait()  # NCCL's: the stream does
        return self.arriving


def _forward(q: Tensor, k: Tensor, v: Tensor, scale: float, right: int) -> tuple[Tensor, Tensor]:
    """O, as q, and the log-sum-exp, [batch, heads, queries]."""
    o, lse = ops.forward(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale, -1, right, 0.0, None, None, None, False, 0, 0)
    return o.transpose(1, 2), lse


def _merge(o: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Takes a part into O, float32, and its log-sum-exp."""
    weight = torch.sigmoid(part_lse - lse).transpose(1, 2).unsqueeze(-1)
    o.lerp_(part.float(), weight)
    lse.copy_(torch.logaddexp(lse, part_lse))


class _ContextParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: Group, causal: bool, scale: float, deterministic: bool) -> tuple[Tensor, Tensor]:
        ring, chunk = _Ring(group), q.shape[1] // 2
        held = [k.contiguous(), v.contiguous()]
        own = held
        travelling = ring.pass_on(held) if ring.ranks > 1 else None
        o, lse = _forward(q, *held, scale, 0 if causal else -1)
        sums = o.float() if ring.ranks > 1 else o
        for hop in range(1, ring.ranks):
            assert travelling is not None
            held = travelling.arrived()
            if hop + 1 < ring.ranks:
                travelling = ring.pass_on(held)
            queries, keys = ring.rows(hop, causal, chunk)
            part, part_lse = _forward(q[:, queries], held[0][:, keys], held[1][:, keys], scale, -1)
            _merge(sums[:, queries], lse[:, :, queries], part, part_lse)
        o = sums.to(q.dtype)
        ctx.save_for_backward(q, *own, o, lse)
        ctx.group, ctx.causal, ctx.scale, ctx.deterministic = group, causal, scale, deterministic
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_o: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if d_o is None:
            return (None,) * 7
        q, k, v, o, lse = ctx.saved_tensors
        ring, chunk = _Ring(ctx.group), q.shape[1] // 2
        held, travelling, sums_travelling = [k, v], None, None
        dq: Tensor = q
        for hop in range(ring.ranks):
            if hop > 0:
                assert travelling is not None
                held = travelling.arrived()
            if hop + 1 < ring.ranks:
                travelling = ring.pass_on(held)
            queries, keys = ring.rows(hop, ctx.causal, chunk) if hop > 0 else (slice(None), slice(None))
            inputs = (d_o[:, queries], q[:, queries], held[0][:, keys], held[1][:, keys], o[:, queries])
            parts = ops.backward(*(tensor.transpose(1, 2) for tensor in inputs), lse[:, :, queries], ctx.scale, -1,
                                 0 if ctx.causal and hop == 0 else -1, 0.0, None, None, None, ctx.deterministic)
            dq_part, *kv_parts = (part.transpose(1, 2) for part in parts)
            if hop == 0:
                dq, sums = dq_part.float(), [part.float().contiguous() for part in kv_parts]
            else:
                assert sums_travelling is not None
                dq[:, queries] += dq_part
                sums = sums_travelling.arrived()  # of these keys, from those who held them before
                for of_all, part in zip(sums, kv_parts):
                    of_all[:, keys] += part
            if ring.ranks > 1:  # the last time they come home
                sums_travelling = ring.pass_on(sums)
        if sums_travelling is not None:
            sums = sums_travelling.arrived()
        return dq.to(q.dtype), sums[0].to(k.dtype), sums[1].to(v.dtype), None, None, None, None


def context_parallel(q: Tensor, k: Tensor, v: Tensor, group: Group = None, *, causal: bool = False, softmax_scale: float | None = None,
                     deterministic: bool = False, return_lse: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of a sequence of which each process of a group has some tokens. All call it with tensors of one size.

    Args:
        q: [batch, tokens, heads, head_dim], this rank's, float16 or bfloat16, in zigzag if causal (`shard` deals whole tensors out)
        k, v: [batch, tokens, kv_heads, head_dim], of the same tokens; kv_heads divides heads
        group: a process group of torch.distributed; None: all processes
        causal: a token sees those before it in the whole sequence, and itself
        softmax_scale: default 1 / sqrt(head_dim)
        deterministic: the gradient has the same bits every time
        return_lse: return (o, lse), lse [batch, heads, tokens], float32
    Returns: o, as q.
    Source: Liu et al. (arXiv 2310.01889).
    """
    arguments.tensors(4, "[batch, tokens, heads, head_dim]", q=q, k=k, v=v)
    if not dist.is_initialized():
        raise RuntimeError("there is no process group: start the program by torchrun, and call torch.distributed.init_process_group")
    causal, deterministic = arguments.flag("causal", causal), arguments.flag("deterministic", deterministic)
    return_lse = arguments.flag("return_lse", return_lse)
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} tokens and k has {k.shape[1]}: give queries, keys and values of the same tokens")
    if causal and q.shape[1] % 2:
        raise ValueError(f"q has {q.shape[1]} tokens: in zigzag a rank has two chunks of one length, so give an even number")
    columns = q.shape[-1]
    q, k, v = (tensor.transpose(1, 2) for tensor in interface.padded(*(tensor.transpose(1, 2) for tensor in (q, k, v))))
    ops.check_tensors(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"q is {q.dtype}: give float16 or bfloat16")
    if ops.wants_gradient(q, k, v):
        deterministic = ops.is_deterministic(deterministic)
        ops.check_gradient(q, False)
    scale = arguments.scale(softmax_scale)
    o, lse = _ContextParallel.apply(q, k, v, group, causal, interface._scale(scale, columns), deterministic)
    o = o if columns == o.shape[-1] else o[..., :columns]
    return (o, lse) if return_lse else o
