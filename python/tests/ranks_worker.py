"""Compares context_parallel, forward and gradients, with attention over the whole sequence. Run by test_ranks.py.

torchrun --nproc-per-node 2 ranks_worker.py
"""

import os
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from reference import assert_as_good_as_plain, attention

import flashbook
from flashbook import _library, ops

# tokens per rank, heads, kv_heads, head_dim, causal, deterministic; then an order, or document starts as fractions of all tokens
CASES = [(64, 4, 2, 64, True, False), (50, 2, 2, 64, False, False), (130, 2, 1, 128, True, True), (2, 2, 2, 64, True, False),
         (66, 1, 1, 256, False, True)]
MORE: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((65, 2, 1, 64, True, False), {"order": "striped"}), ((1, 2, 2, 64, True, False), {"order": "striped"}),
    ((64, 2, 1, 64, True, False), {"documents": (0.3, 0.3, 0.35, 0.8)}), ((50, 2, 2, 64, False, True), {"documents": (0.05, 0.5, 0.7)}),
    ((30, 1, 1, 64, True, False), {"documents": [i / 60 for i in range(1, 60)]})]


def gradients_of(outputs, gradients, *inputs):
    return torch.autograd.grad(outputs, inputs, gradients)


def is_right(device, dtype, tokens, heads, kv_heads, head_dim, causal, deterministic, order="zigzag", documents=None):
    ranks, batch = dist.get_world_size(), 1 if documents else 2
    n = tokens * ranks
    cu_seqlens = torch.tensor([0, *(round(part * n) for part in documents), n], dtype=torch.int32, device=device) if documents else None
    document = torch.bucketize(torch.arange(n), cu_seqlens.cpu(), right=True) if cu_seqlens is not None else None
    torch.manual_seed(n)  # all ranks have the same whole tensors
    whole = [torch.randn(batch, n, count, head_dim, dtype=dtype) for count in (heads, kv_heads, kv_heads, heads)]
    *inputs, d_o = (tensor.to(device) for tensor in whole)
    d_lse = torch.randn(batch, heads, n)
    own = [flashbook.shard(tensor, order=order).requires_grad_() for tensor in inputs]
    o, lse = flashbook.context_parallel(*own, causal=causal, deterministic=deterministic, return_lse=True, order=order, cu_seqlens=cu_seqlens)
    found = [o, *gradients_of((o, lse), (flashbook.shard(d_o, order=order), flashbook.shard(d_lse.to(device), dim=2, order=order)), *own)]
    found = [flashbook.unshard(tensor, order=order).cpu() for tensor in found]
    lse = flashbook.unshard(lse, dim=2, order=order).cpu()

    def by_reference(type_):
        q, k, v = copies = [tensor.to(type_).requires_grad_() for tensor in whole[:3]]
        result, own_lse = attention(q, k, v, causal=causal, document=document)
        return [tensor.detach() for tensor in (result, *gradients_of((result, own_lse), (whole[3].to(type_), d_lse.to(type_)), *copies))], own_lse.detach()

    (exact, exact_lse), (plain, _) = by_reference(torch.float64), by_reference(dtype)
    for got, want, as_plain in zip(found, exact, plain):
        assert_as_good_as_plain(got, want, as_plain)
    torch.testing.assert_close(lse.double(), exact_lse, atol=2e-3, rtol=0)


def takes_a_loss_on_the_log_sum_exp_alone(device):
    torch.manual_seed(1)
    own = [torch.randn(1, 6, 2, 64, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    o, lse = flashbook.context_parallel(*own, causal=True, deterministic=True, return_lse=True)
    d_lse = torch.randn_like(lse)
    right = torch.autograd.grad((o, lse), own, (torch.zeros_like(o), d_lse), retain_graph=True)
    found = torch.autograd.grad(lse, own[:2], d_lse)  # it does not depend on V
    assert found[0].any() and all(map(torch.equal, found, right))


def refuses_second_derivatives(device):
    """Tests a loss on a gradient, with respect to each of q, k and v. Its dO needs no gradient."""
    for wanted in range(3):
        own = [torch.randn(1, 6, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(3)]
        first, second = own[wanted].requires_grad_(), own[(wanted + 1) % 3].requires_grad_()
        o, _ = flashbook.context_parallel(*own, causal=True, return_lse=True)
        (gradient,) = torch.autograd.grad(o.float().sum(), first, create_graph=True)
        assert gradient.isfinite().all()
        with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
            torch.autograd.grad(gradient.float().square().sum(), second)


def refuses():
    q = torch.randn(1, 3, 2, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="even number"):
        flashbook.context_parallel(q, q, q, causal=True)
    with pytest.raises(ValueError, match="same tokens"):
        flashbook.context_parallel(q, q[:, :2], q[:, :2])
    with pytest.raises(TypeError, match="float16"):
        flashbook.context_parallel(q.float(), q.float(), q.float())
    with pytest.raises(ValueError, match="pad the sequence"):
        flashbook.shard(torch.zeros(1, 7, 1, 64))
    with pytest.raises(ValueError, match="'zigzag' or 'striped'"):
        flashbook.shard(torch.zeros(1, 8, 1, 64), order="contiguous")
    packed = torch.tensor([0, 1, 4 * dist.get_world_size()], dtype=torch.int32)
    q = torch.randn(2, 4, 2, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="leave order out"):
        flashbook.context_parallel(q[:1], q[:1], q[:1], order="striped", cu_seqlens=packed)
    with pytest.raises(ValueError, match="batch of 1"):
        flashbook.context_parallel(q, q, q, cu_seqlens=packed)


def main():
    on_gpu = torch.cuda.is_available() and not _library.is_simulated()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        ops.ON_CPU = ops.HOPPER, "persistent"
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    for case in CASES:
        is_right(device, torch.bfloat16, *case)
    for case, more in MORE:
        is_right(device, torch.bfloat16, *case, **more)
    is_right(device, torch.float16, *CASES[0])
    takes_a_loss_on_the_log_sum_exp_alone(device)
    refuses_second_derivatives(device)
    refuses()
    if len(sys.argv) > 1:  # no rank may exit during another rank's next case
        if dist.get_rank() == 1:
            os._exit(9)
        is_right(device, torch.bfloat16, *CASES[0])
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {device}: right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
