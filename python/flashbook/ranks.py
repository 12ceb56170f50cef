"""Attention over a sequence that is split across the processes of a group: keys and values travel around a ring (chapter 10).

    q, k, v = (flashbook.shard(tensor, group) for tensor in (q, k, v))  # this rank's tokens; or load only these
    o = flashbook.context_parallel(q, k, v, group, causal=True)
    o = flashbook.unshard(o, group)

Tokens are split in zigzag order: with 2 P chunks, rank r has chunks r and 2 P - 1 - r, an early and a late one. Under a causal mask every rank
then has the same amount of work at every hop, and each hop's mask is full or causal: all queries see the first half of an earlier rank's keys,
and the second half of the queries sees all of a later rank's keys. With order="striped", rank r has tokens r, r + P, r + 2 P and so on. Then every
hop has a causal mask, and a query sees one key less if the keys come from a later rank.

At each hop, the local tokens of a packed document (`cu_seqlens`) form their own sequence, so a hop has work only if a
document spans several ranks.

Messages go point to point through torch.distributed, over NCCL or Gloo. Partial results are merged in float32, and so are the gradients of keys
and values, which follow the keys around the ring.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from flashbook import arguments, interface, ops

Group = Any  # a ProcessGroup; None means all processes


# ---- zigzag ------------------------------------------------------------------------------------------------------------------------


def _chunks(tokens: int, ranks: int) -> int:
    """Returns the length of a chunk."""
    if tokens % (2 * ranks):
        raise ValueError(f"{tokens} tokens cannot be split into {2 * ranks} equal chunks for {ranks} ranks: pad the sequence at its end, where a "
                         "causal mask hides the padding")
    return tokens // (2 * ranks)


def _is_striped(order: str) -> bool:
    if order not in ("zigzag", "striped"):
        raise ValueError(f"order is {order!r}: pass 'zigzag' or 'striped'")
    return order == "striped"


def _check_stripes(tokens: int, ranks: int) -> None:
    if tokens % ranks:
        raise ValueError(f"{tokens} tokens cannot be split into equal stripes for {ranks} ranks: pad the sequence at its end, where a causal mask "
                         "hides the padding")


def shard(tensor: Tensor, group: Group = None, dim: int = 1, order: str = "zigzag") -> Tensor:
    """Returns this rank's tokens of a whole tensor, along `dim`, in zigzag or striped order."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if _is_striped(order):
        _check_stripes(tensor.shape[dim], ranks)
        return tensor.transpose(0, dim)[rank::ranks].transpose(0, dim).contiguous()
    chunk = _chunks(tensor.shape[dim], ranks)
    return torch.cat([tensor.narrow(dim, place * chunk, chunk) for place in (rank, 2 * ranks - 1 - rank)], dim)


def unshard(tensor: Tensor, group: Group = None, dim: int = 1, order: str = "zigzag") -> Tensor:
    """Returns the whole tensor of all ranks' tokens, along `dim`, on every rank. Not differentiable."""
    ranks = dist.get_world_size(group)
    own = tensor.detach().contiguous()
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather([_bytes(part) for part in parts], _bytes(own), group=group)
    if _is_striped(order):
        return torch.stack(parts, dim + 1 if dim >= 0 else dim).flatten(*((dim, dim + 1) if dim >= 0 else (dim - 1, dim)))
    halves = [part.chunk(2, dim) for part in parts]
    return torch.cat([half[0] for half in halves] + [half[1] for half in reversed(halves)], dim)


# ---- the ring ----------------------------------------------------------------------------------------------------------------------


def _bytes(tensor: Tensor) -> Tensor:
    """Returns the same memory as bytes, which every backend can send."""
    return tensor.view(-1).view(torch.uint8)


class _Ring:
    """A rank's neighbours, and its part of the mask at each hop."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)
        self.next, self.previous = (place if group is None else dist.get_global_rank(group, place)
                                    for place in ((self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks))

    def pass_on(self, tensors: list[Tensor]) -> "_Travelling":
        """Starts sending tensors to the next rank and receiving tensors of the same sizes from the previous rank."""
        arriving = [torch.empty_like(tensor) for tensor in tensors]
        messages = [dist.P2POp(dist.isend, _bytes(tensor), self.next, self.group) for tensor in tensors]
        messages += [dist.P2POp(dist.irecv, _bytes(tensor), self.previous, self.group) for tensor in arriving]
        return _Travelling(dist.batch_isend_irecv(messages), arriving, tensors)

    def rows(self, hop: int, causal: bool, tokens: int, striped: bool) -> tuple[slice, slice, int]:
        """Returns the queries and keys that take part in a hop, whose keys come from the rank `hop` places earlier, and
        the number of keys after its own that a query sees (-1: all)."""
        if not causal:
            return slice(None), slice(None), -1
        if hop == 0:
            return slice(None), slice(None), 0
        if striped:
            return (slice(None), slice(None), 0) if self.rank >= hop else (slice(1, None), slice(0, tokens - 1), 0)
        return (slice(None), slice(0, tokens // 2), -1) if self.rank >= hop else (slice(tokens // 2, None), slice(None), -1)

    def begins(self, cu_seqlens: Tensor | None, hop: int, rows: slice, tokens: int) -> Tensor | None:
        """Returns the start of each document in these rows (one chunk or both) of the rank `hop` places before."""
        if cu_seqlens is None:
            return None
        owner, chunk = (self.rank - hop) % self.ranks, tokens // 2
        places = [owner, 2 * self.ranks - 1 - owner]
        chosen = places[1:] if rows.start else places[:1] if rows.stop else places
        return torch.stack([(cu_seqlens - chunk * place).clamp(0, chunk) for place in chosen]).sum(0, dtype=torch.int32)


class _Travelling:
    """The messages in flight."""

    def __init__(self, works: list[Any], arriving: list[Tensor], leaving: list[Tensor]) -> None:
        self.works, self.arriving, self.leaving = works, arriving, leaving  # keeps the memory alive until it has been sent

    def arrived(self) -> list[Tensor]:
        for work in self.works:
            work.wait()  # with NCCL, only the stream waits
        return self.arriving


def _forward(q: Tensor, k: Tensor, v: Tensor, scale: float, right: int, first_query: Tensor | None,
             first_key: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns O, with q's shape, and the log-sum-exp, [batch, heads, queries]."""
    o, lse = ops.forward(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale, -1, right, 0.0, None, first_query, first_key, False, 0, 0)
    return o.transpose(1, 2), lse


def _merge(o: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Merges a partial result into O, in float32, and its log-sum-exp."""
    weight = torch.sigmoid(part_lse - lse).transpose(1, 2).unsqueeze(-1)
    o.lerp_(part.float(), weight)
    lse.copy_(torch.logaddexp(lse, part_lse))


class _ContextParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: Group, causal: bool, scale: float, deterministic: bool, striped: bool,
                cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
        ring, tokens = _Ring(group), q.shape[1]

        def part_of(hop: int, held: list[Tensor]) -> tuple[slice, Tensor, Tensor]:
            queries, keys, right = ring.rows(hop, causal, tokens, striped)
            begins = ring.begins(cu_seqlens, 0, queries, tokens), ring.begins(cu_seqlens, hop, keys, tokens)
            return queries, *_forward(q[:, queries], held[0][:, keys], held[1][:, keys], scale, right, *begins)

        held = [k.contiguous(), v.contiguous()]
        own = held
        travelling = ring.pass_on(held) if ring.ranks > 1 else None
        _, o, lse = part_of(0, held)
        sums = o.float() if ring.ranks > 1 else o
        for hop in range(1, ring.ranks):
            assert travelling is not None
            held = travelling.arrived()
            if hop + 1 < ring.ranks:
                travelling = ring.pass_on(held)
            queries, part, part_lse = part_of(hop, held)
            _merge(sums[:, queries], lse[:, :, queries], part, part_lse)
        o = sums.to(q.dtype)
        ctx.save_for_backward(q, *own, o, lse, cu_seqlens)
        ctx.group, ctx.causal, ctx.scale, ctx.deterministic, ctx.striped = group, causal, scale, deterministic, striped
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        # Every rank must take part in the ring, even if its own loss does not use O.
        d_o = torch.zeros_like(saved[3]) if d_o is None else d_o
        return (*ops.once(lambda *tensors: _ContextParallel.gradients(ctx, *tensors), d_o, d_lse, *saved), *(None,) * 6)

    @staticmethod
    def gradients(ctx: Any, d_o: Tensor, d_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
                  cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        ring, tokens = _Ring(ctx.group), q.shape[1]
        held, travelling, sums_travelling = [k, v], None, None
        dq: Tensor = q
        for hop in range(ring.ranks):
            if hop > 0:
                assert travelling is not None
                held = travelling.arrived()
            if hop + 1 < ring.ranks:
                travelling = ring.pass_on(held)
            queries, keys, right = ring.rows(hop, ctx.causal, tokens, ctx.striped)
            first_query, first_key = ring.begins(cu_seqlens, 0, queries, tokens), ring.begins(cu_seqlens, hop, keys, tokens)
            inputs = (d_o[:, queries], q[:, queries], held[0][:, keys], held[1][:, keys], o[:, queries])
            parts = ops.backward(*(tensor.transpose(1, 2) for tensor in inputs), lse[:, :, queries], ctx.scale, -1, right, 0.0, None,  # type: ignore[misc]
                                 first_query, first_key, ctx.deterministic, d_lse=None if d_lse is None else d_lse[:, :, queries])
            dq_part, *kv_parts = (part.transpose(1, 2) for part in parts)
            if hop == 0:
                dq, sums = dq_part.float(), [part.float().contiguous() for part in kv_parts]
            else:
                assert sums_travelling is not None
                dq[:, queries] += dq_part
                sums = sums_travelling.arrived()  # gradients of these keys so far, from the previous ranks
                for total, part in zip(sums, kv_parts):
                    total[:, keys] += part
            if ring.ranks > 1:  # after the last hop they return to their owner
                sums_travelling = ring.pass_on(sums)
        if sums_travelling is not None:
            sums = sums_travelling.arrived()
        return dq.to(q.dtype), sums[0].to(k.dtype), sums[1].to(v.dtype)


def context_parallel(q: Tensor, k: Tensor, v: Tensor, group: Group = None, *, causal: bool = False, softmax_scale: float | None = None,
                     deterministic: bool = False, return_lse: bool = False, order: str = "zigzag",
                     cu_seqlens: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """Computes attention over a sequence that is split across the processes of a group. All processes must call it,
    with tensors of equal sizes.

    Args:
        q: [batch, tokens, heads, head_dim], this rank's tokens in `order` (see `shard`), float16 or bfloat16
        k, v: [batch, tokens, kv_heads, head_dim], the same tokens; kv_heads divides heads
        group: a process group of torch.distributed; None means all processes
        causal: a token sees itself and all tokens before it in the whole sequence
        softmax_scale: default 1 / sqrt(head_dim)
        deterministic: make the gradient bitwise reproducible
        return_lse: return (o, lse), lse [batch, heads, tokens], float32
        order: "zigzag" or "striped"
        cu_seqlens: [documents + 1], int32 on q's device, the same on all ranks: where each packed document begins in the whole sequence, then the
            total number of tokens. Documents do not see each other. Requires zigzag order and a batch of 1. The values are not checked
    Returns: o, as q.
    Source: Liu et al. (arXiv 2310.01889); stripes: Brandon et al. (arXiv 2311.09431).
    """
    arguments.tensors(4, "[batch, tokens, heads, head_dim]", q=q, k=k, v=v)
    if not dist.is_initialized():
        raise RuntimeError("there is no process group: start the program with torchrun, and call torch.distributed.init_process_group")
    causal, deterministic = arguments.flag("causal", causal), arguments.flag("deterministic", deterministic)
    return_lse = arguments.flag("return_lse", return_lse)
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} tokens and k has {k.shape[1]}: pass q, k and v of the same tokens")
    striped = _is_striped(order)
    if cu_seqlens is not None:
        arguments.tensors(1, "[documents + 1]", cu_seqlens=cu_seqlens)
        ops.check_arrays(q.transpose(1, 2), None, cu_seqlens, cu_seqlens)
        if striped:
            raise ValueError("order is 'striped', and cu_seqlens needs 'zigzag': leave order out")
        if q.shape[0] != 1:
            raise ValueError(f"q has a batch of {q.shape[0]}, and cu_seqlens packs all documents into one sequence: pass a batch of 1")
    if (causal or cu_seqlens is not None) and not striped and q.shape[1] % 2:
        raise ValueError(f"q has {q.shape[1]} tokens: pass an even number, since in zigzag order a rank has two equal chunks")
    columns = q.shape[-1]
    q, k, v = (tensor.transpose(1, 2) for tensor in interface.padded(*(tensor.transpose(1, 2) for tensor in (q, k, v))))
    ops.check_tensors(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"q is {q.dtype}: pass float16 or bfloat16")
    if ops.wants_gradient(q, k, v):
        deterministic = ops.is_deterministic(deterministic)
        ops.check_gradient(q, v.shape[-1], cu_seqlens is not None)
    scale = arguments.scale(softmax_scale)
    o, lse = _ContextParallel.apply(q, k, v, group, causal, interface._scale(scale, columns), deterministic, striped, cu_seqlens)
    o = o if columns == o.shape[-1] else o[..., :columns]
    return (o, lse) if return_lse else o
