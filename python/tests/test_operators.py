"""What PyTorch expects of an operator: schema, fake tensors, compile without breaks, autocast, streams, devices, CUDA graphs."""

import pathlib
import subprocess
import sys

import pytest
import torch
from conftest import DEVICE, GPU
from reference import attention

import flashbook


def inputs(rows=70, heads=(4, 2), grad=False, dtype=torch.bfloat16):
    return [torch.randn(2, rows, count, 64, device=DEVICE, dtype=dtype, requires_grad=grad) for count in (heads[0], heads[1], heads[1])]


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [(-1, -1, 0.0), (-1, 0, 0.0), (20, 0, 0.0), (-1, -1, 20.0)])
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck_forward(mask, grad):
    q, k, v = (tensor.transpose(1, 2) for tensor in inputs(grad=grad))
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q, k, v, 0.125, *mask, None, None, None, False, 0, 0))


@pytest.mark.kernels
def test_opcheck_backward_decode_and_packed():
    q, k, v = (tensor.transpose(1, 2) for tensor in inputs())
    o, lse = torch.ops.flashbook.forward(q, k, v, 0.125, -1, 0, 0.0, None, None, None, False, 0, 0)
    arguments = (torch.randn_like(o), q, k, v, o, lse, 0.125, -1, 0, 0.0, None, None, None, True)
    torch.library.opcheck(torch.ops.flashbook.backward.default, arguments)
    lengths = torch.tensor([30, 70], device=DEVICE, dtype=torch.int32)
    torch.library.opcheck(torch.ops.flashbook.decode.default, (q[:, :, :1], k, v, lengths, None, 0.125, False))
    first = torch.tensor([0, 30, 70], device=DEVICE, dtype=torch.int32)
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q[:1], k[:1], v[:1], 0.125, -1, 0, 0.0, None, first, first, False, 0, 0))


def test_opcheck_on_the_host():
    q = torch.randn(1, 2, 30, 64)
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q, q.clone(), q.clone(), 0.125, -1, 0, 0.0, None, None, None, False, 2, 5))


@pytest.mark.kernels
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_break(dynamic):
    def block(q, k, v):
        return flashbook.flash_attn_func(q * 2, k, v, causal=True) + flashbook.flash_attn_func(q, k, v, window_size=(9, 0))

    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="inductor" if GPU else "aot_eager")
    for rows in (70, 90):
        leaves = inputs(rows, grad=True)
        right, got = block(*leaves), compiled(*leaves)
        torch.testing.assert_close(got, right, atol=2e-2, rtol=2e-2)
        for one, other in zip(torch.autograd.grad(got.float().sum(), leaves), torch.autograd.grad(right.float().sum(), leaves)):
            torch.testing.assert_close(one, other, atol=5e-2, rtol=5e-2)
    cached = torch.compile(lambda q, k, v, n: flashbook.flash_attn_with_kvcache(q, k, v, cache_seqlens=n), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        q, k, v = inputs()
        lengths = torch.tensor([30, 70], device=DEVICE, dtype=torch.int32)
        assert torch.equal(cached(q[:, :1], k, v, lengths), flashbook.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=lengths))


@pytest.mark.kernels
def test_past_the_dispatcher_it_is_the_same():
    q, k, v = inputs()
    through = torch.ops.flashbook.forward(*(tensor.transpose(1, 2) for tensor in (q, k, v)), 0.125, -1, 0, 0.0, None, None, None, False, 0, 0)
    past = flashbook.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert torch.equal(through[0].transpose(1, 2), past[0]) and torch.equal(through[1], past[1])


@pytest.mark.kernels
def test_autocast():
    leaves = inputs(dtype=torch.float32, grad=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        o = flashbook.flash_attn_func(*leaves, causal=True)
    assert o.dtype == torch.bfloat16
    o.float().sum().backward()
    assert all(leaf.grad.dtype == torch.float32 and leaf.grad.isfinite().all() for leaf in leaves)
    torch.testing.assert_close(o.float(), attention(*(leaf.detach() for leaf in leaves), causal=True)[0], atol=3e-2, rtol=3e-2)


@pytest.mark.kernels
def test_no_second_derivative():
    q, k, v = inputs(grad=True)
    (gradient,) = torch.autograd.grad(flashbook.flash_attn_func(q, k, v).float().square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(gradient.sum(), q)


def test_the_readme_runs():
    readme = (pathlib.Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    subprocess.run([sys.executable, "-c", readme.partition("```python\n")[2].partition("```")[0]], check=True, timeout=120)


@pytest.mark.gpu
def test_streams():
    """A call goes to the current stream, behind what is there, and waits for nothing."""
    q, k, v = inputs(2000)
    right = flashbook.flash_attn_func(q, k, v, causal=True)
    late = torch.zeros_like(q)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            late.copy_(q)
            o = flashbook.flash_attn_func(late, k, v, causal=True)
            assert not stream.query()  # the call came back while the device slept
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(o, right)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"causal": True}, {}, {"window_size": (50, 0)}, {"softcap": 20.0}])
def test_cuda_graphs(options):
    leaves = inputs(300, grad=True)
    d_o = torch.randn_like(leaves[0])
    run = lambda: (o := flashbook.flash_attn_func(*leaves, **options), *torch.autograd.grad(o, leaves, d_o))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = run()
    for _ in range(3):
        with torch.no_grad():
            for leaf in leaves:
                leaf.copy_(torch.randn_like(leaf))
        graph.replay()
        torch.cuda.synchronize()
        for got, right in zip(captured, run()):
            torch.testing.assert_close(got, right, atol=2e-2, rtol=2e-2)


@pytest.mark.gpu
def test_cuda_graph_of_a_decoder():
    q, k, v = inputs(500)
    lengths = torch.tensor([30, 400], device=DEVICE, dtype=torch.int32)
    call = lambda: flashbook.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=lengths)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    for length in (10, 499):
        lengths.fill_(length)
        graph.replay()
        assert torch.equal(captured, call())


@pytest.mark.gpu
def test_two_devices():
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    right = flashbook.flash_attn_func(*(tensors := inputs()), causal=True)
    assert torch.equal(flashbook.flash_attn_func(*(tensor.to("cuda:1") for tensor in tensors), causal=True).to("cuda:0"), right)
    assert torch.cuda.current_device() == 0


@pytest.mark.kernels
def test_transformers():
    transformers = pytest.importorskip("transformers")
    import flashbook.transformers  # noqa: F401

    config = transformers.LlamaConfig(vocab_size=100, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=128)
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16)
    tokens = torch.randint(100, (2, 20), device=DEVICE)
    logits, gradients, written = {}, {}, {}
    for name in ("sdpa", "flashbook"):
        model.set_attn_implementation(name)
        model.zero_grad()
        found = model(tokens, labels=tokens)
        found.loss.backward()
        logits[name], gradients[name] = found.logits, model.model.layers[0].self_attn.q_proj.weight.grad.clone()
        with torch.no_grad():
            written[name] = model.generate(tokens, max_new_tokens=5 if GPU else 2, do_sample=False, pad_token_id=0)
    torch.testing.assert_close(logits["flashbook"], logits["sdpa"], atol=5e-2, rtol=5e-2)
    torch.testing.assert_close(gradients["flashbook"], gradients["sdpa"], atol=5e-2 * gradients["sdpa"].abs().max().item(), rtol=5e-2)
    assert written["flashbook"].shape == written["sdpa"].shape
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0  # padding on the left, which transformers takes out before it calls us
    with torch.no_grad():
        found = {name: (model.set_attn_implementation(name), model(tokens, attention_mask=mask).logits[0, 3:])[1] for name in ("sdpa", "flashbook")}
    torch.testing.assert_close(found["flashbook"], found["sdpa"], atol=5e-2, rtol=5e-2)
