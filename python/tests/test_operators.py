"""Tests PyTorch's requirements for operators: schema, fake tensors, compilation without breaks, autocast, streams, devices, CUDA graphs."""

import ctypes
import pathlib
import struct
import subprocess
import sys
import threading
import types

import pytest
import torch
from conftest import DEVICE, GPU
from reference import attention

import flashbook
from flashbook import _library, flash_attn_3, interface, ops


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
    drops = {"dropout": 0.25, "seed": torch.tensor([5])}
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q, k, v, 0.125, -1, 0, 0.0, None, None, None, False, 0, 0), drops)
    torch.library.opcheck(torch.ops.flashbook.backward.default, arguments, drops)
    bias = torch.randn(q.shape[1], 9, device=DEVICE)
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q, k, v, 0.125, -1, 0, 0.0, None, None, None, False, 0, 0), {"bias": bias})
    torch.library.opcheck(torch.ops.flashbook.backward.default, arguments, {"bias": bias})
    torch.library.opcheck(torch.ops.flashbook.backward_with_bias.default, (*arguments[:6], bias, *arguments[6:-1], False))
    with pytest.raises(ValueError, match="seed"):
        torch.ops.flashbook.forward(q, k, v, 0.125, -1, 0, 0.0, None, None, None, False, 0, 0, dropout=0.25)
    lengths = torch.tensor([30, 70], device=DEVICE, dtype=torch.int32)
    torch.library.opcheck(torch.ops.flashbook.decode.default, (q[:, :, :1], k, v, lengths, None, 0.125))
    slopes = torch.rand(q.shape[1], device=q.device)
    torch.library.opcheck(torch.ops.flashbook.decode.default, (q[:, :, :1], k, v, lengths, None, 0.125, 7, 0, 20.0, slopes, slopes, lengths * 0))
    first = torch.tensor([0, 30, 70], device=DEVICE, dtype=torch.int32)
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q[:1], k[:1], v[:1], 0.125, -1, 0, 0.0, None, first, first, False, 0, 0))


def test_opcheck_on_the_host():
    q = torch.randn(1, 2, 30, 64)
    torch.library.opcheck(torch.ops.flashbook.forward.default, (q, q.clone(), q.clone(), 0.125, -1, 0, 0.0, None, None, None, False, 2, 5))


@pytest.mark.kernels
def test_dropout_compiles_without_a_break():
    """A compiled call draws a new seed each time, manual_seed repeats it, and its gradient drops the same elements: if V and dO are the identity,
    O is P after dropout, and dV is its transpose."""
    compiled = torch.compile(lambda q, k, v: flashbook.flash_attn_func(q, k, v, 0.25, causal=True), fullgraph=True,
                             backend="inductor" if GPU else "aot_eager")
    q, k, _ = inputs(64, (2, 2), grad=True)
    v = torch.eye(64, device=DEVICE, dtype=q.dtype)[:, None].expand(2, 64, 2, 64).clone().requires_grad_()
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        outputs.append(compiled(q, k, v))
    assert torch.equal(*outputs) and not torch.equal(compiled(q, k, v), outputs[0])
    dv, = torch.autograd.grad(outputs[0], v, v.detach())
    left = outputs[0].transpose(1, 3)
    assert torch.equal(dv != 0, left != 0) and (left != 0).sum() < 0.8 * 2 * 2 * 64 * 65 / 2
    torch.testing.assert_close(dv, left, atol=1e-2, rtol=2e-2)


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
@pytest.mark.parametrize("options", [{"causal": True, "deterministic": True}, {"window_size": (20, 5)}, {"softcap": 20.0}])
def test_the_second_gradient_is_as_the_first(options):
    """The first call takes the slow path; later ones are remembered."""
    leaves = inputs(grad=True)
    for d_o in (torch.randn_like(leaves[0]), torch.ones(1, device=DEVICE, dtype=torch.bfloat16).expand_as(leaves[0])):
        runs = []
        for _ in range(3):
            o = flashbook.flash_attn_func(*leaves, **options)
            runs.append((o.detach(), *torch.autograd.grad(o, leaves, d_o)))
        through = torch.ops.flashbook.forward(*(leaf.transpose(1, 2) for leaf in leaves), 0.125, *options.get("window_size", (-1, 0 if "causal" in options else -1)),
                                              options.get("softcap", 0.0), None, None, None, "deterministic" in options, 0, 0)[0].transpose(1, 2)
        assert torch.equal(runs[0][0], through)
        if "deterministic" in options:
            runs.append((through.detach(), *torch.autograd.grad(through, leaves, d_o)))
        for run in runs[1:]:
            assert torch.equal(runs[0][0], run[0])
            for one, other in zip(runs[0], run):
                torch.testing.assert_close(one, other, atol=0 if "deterministic" in options else 2e-2, rtol=0 if "deterministic" in options else 1e-2)
                assert one.stride() == other.stride()
    assert interface._cached_calls


REMEMBERED = [(module, kind) for module in (flashbook, flash_attn_3) for kind in ("cache", "full cache", "window", "pages", "packed", "dense")]


def remembered(module, kind):
    """Returns a call to be remembered: the function, its tensors and its options."""
    q, k, v = inputs(64)
    lengths = torch.tensor([30, 64], device=DEVICE, dtype=torch.int32)
    table = torch.arange(8, device=DEVICE, dtype=torch.int32).view(2, 4)
    first = torch.tensor([0, 50, 128], device=DEVICE, dtype=torch.int32)
    pages = tuple(tensor.view(8, 16, 2, 64) for tensor in (k, v))
    cache = module.flash_attn_with_kvcache
    return {"cache": (cache, (q[:, :2], k, v), {"cache_seqlens": lengths, "causal": True}),
            "full cache": (cache, (q[:, :1], k, v), {"return_softmax_lse": True}),
            "window": (cache, (q[:, :2], k, v), {"cache_seqlens": lengths, "window_size": (9, 0)}),
            "pages": (cache, (q[:, :1], *pages), {"cache_seqlens": lengths, "block_table" if module is flashbook else "page_table": table}),
            "packed": (module.flash_attn_varlen_func, tuple(tensor.flatten(0, 1) for tensor in (q, k, v)),
                       {"cu_seqlens_q": first, "cu_seqlens_k": first, "max_seqlen_q": 78, "max_seqlen_k": 78, "causal": True}),
            "dense": (module.flash_attn_func, (q, k, v), {"window_size": (9, 0), "return_attn_probs": True})}[kind]


@pytest.mark.kernels
@pytest.mark.parametrize("module, kind", REMEMBERED)
def test_a_call_that_has_been_before_reads_its_arrays_again(module, kind):
    function, tensors, options = remembered(module, kind)
    as_tuple = lambda result: result[:2] if isinstance(result, tuple) else (result,)
    first = as_tuple(function(*tensors, **options))
    assert len(interface._cached_calls) == 1
    changed = {key: value.flip(0) if key in ("cache_seqlens", "block_table", "page_table") else value for key, value in options.items()}
    q = torch.empty_strided(tensors[0].shape, tensors[0].stride(), dtype=tensors[0].dtype, device=DEVICE).copy_(tensors[0])
    others = q, *tensors[1:]
    for given in (options, changed):
        again = as_tuple(function(*others, **given))
        assert len(interface._cached_calls) == 1
        interface._cached_calls.clear()
        right = as_tuple(function(*tensors, **given))
        assert all(torch.equal(one, other) and one.stride() == other.stride() for one, other in zip(again, right))
    assert all(torch.equal(one, other) for one, other in zip(first, as_tuple(function(*tensors, **options))))


def problem_of(given):
    """Returns the structs of a problem, which is given as bytes or by its address: {name: {field: value}}."""
    address = ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p).value if isinstance(given, bytes) else given
    names = {kind.kind_: name for name, kind in _library.STRUCTS.items() if kind.kind_}
    structs, places = {}, [("Problem", address)]
    while places:
        name, at = places.pop()
        found = _library.STRUCTS[name].from_address(at)
        structs[name] = {field: bytes(value) if isinstance(value := getattr(found, field), ctypes.Structure) else value for field, _ in found._fields_}
        if len(structs) <= structs["Problem"]["features"]:
            following = at + ctypes.sizeof(found)
            places.append((names[ctypes.c_int32.from_address(following).value], following))
    return structs


@pytest.fixture
def noted(monkeypatch):
    """Replaces the C functions and records their arguments, as if on a GPU."""
    noted, make, chapters, step = [], ops.planned, _library.chapters(), _library.library().flashbook_step

    def note(*given):
        noted.append(given)
        return 0

    def planned(*given, **named):
        plan = make(*given, **named)
        plan.simulated, plan.index = False, max(plan.index, 0)
        return plan

    monkeypatch.setattr(ops, "planned", planned)
    calls = {"flashbook_attention": note, "flashbook_backward": note, "flashbook_workspace_bytes": lambda *_: 4096, "flashbook_step": step}
    monkeypatch.setattr(_library, "library", lambda: types.SimpleNamespace(**calls))
    monkeypatch.setattr(_library, "chapters", lambda: chapters)
    for kept in ("_kept", "_scratch"):
        monkeypatch.setattr(ops, kept, {})
    if not GPU:
        monkeypatch.setattr(ops, "current_device", lambda: 0)
        monkeypatch.setattr(ops, "raw_stream", lambda index: 0)
        monkeypatch.setattr(ops, "is_capturing", lambda: False)
    return noted


@pytest.mark.kernels
@pytest.mark.parametrize("module, kind", REMEMBERED)
def test_a_call_that_has_been_before_takes_nothing_else(module, kind, noted):
    """A different tensor, or an equal option of a different class, raises after a remembered call just as before it."""
    function, tensors, options = remembered(module, kind)
    q, k, v = tensors
    wrong = [((q.half(), k, v), {}), ((q, k[:1], v), {}), ((q[..., 1:], k, v), {}), ((q, k.float(), v), {}), ((q, k, v.to("meta")), {}),
             ((q, k, 1.0), {}), (tensors, {"causal": int(options.get("causal", False))}), (tensors, {"softcap": False}), (tensors, {"softmax_scale": True}),
             (tensors, {"window_size": tuple(map(float, options.get("window_size", (-1, -1))))})]
    for array in ("cache_seqlens", "block_table", "page_table", "cu_seqlens_q"):
        if array in options:
            wrong += [(tensors, {array: change(options[array])}) for change in (lambda t: t.long(), lambda t: t[1:], lambda t: t.tolist())]
            wrong.append((tensors, {array: torch.stack([options[array]] * 2, -1)[..., 0]}))  # not contiguous
    if "cache" in function.__name__:
        wrong += [((q.detach().requires_grad_(), k, v), {}), (tensors, {"num_splits": False})]
    for others, change in wrong:
        messages = []
        for was_before in (False, True):
            interface._cached_calls.clear()
            if was_before:
                function(*tensors, **options)
                function(*tensors, **options)
            with pytest.raises((ValueError, TypeError, NotImplementedError)) as refusal:
                function(*others, **options | change)
            messages.append((refusal.type, str(refusal.value)))
        assert messages[0] == messages[1]


@pytest.mark.kernels
@pytest.mark.parametrize("module, kind", REMEMBERED)
def test_the_short_way_hands_over_what_the_whole_way_does(module, kind, noted, monkeypatch):
    function, tensors, options = remembered(module, kind)
    leaves = tuple(tensor.detach().clone().requires_grad_("cache" not in function.__name__) for tensor in tensors)

    def run():
        noted.clear()
        o = function(*leaves, **options)
        o = o[0] if isinstance(o, tuple) else o
        if o.requires_grad:
            torch.autograd.grad(o, leaves, torch.ones_like(o))
        return [without_places(call) for call in noted]

    def without_places(call):
        """Returns everything except the addresses of results, workspaces and derived tensors."""
        chapter, step, problem, *pointers, _ = call
        tensors, *gradients = (struct.unpack("=7Q", part) for part in pointers)
        assert tensors[1:4] == tuple(leaf.data_ptr() for leaf in leaves)
        return chapter, step, problem_of(problem), [part[5:] for part in gradients]

    with monkeypatch.context() as patch:
        patch.setattr(interface, "known_call", lambda *_: (None, None))
        whole = run()
    run(), run()  # the call is remembered, and so is its gradient
    for launch in ("forward", "backward"):
        monkeypatch.setattr(ops, f"launch_{launch}", None)
    assert run() == whole and len(whole) == 1 + leaves[0].requires_grad


@pytest.mark.kernels
@pytest.mark.parametrize("kind", ["packed", "dense"])
def test_a_remembered_gradient_reads_the_saved_tensors_where_they_are_now(kind, noted):
    """Each thread has workspaces of its own."""
    function, tensors, options = remembered(flashbook, kind)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]

    def run(between=lambda: None):
        o = function(*leaves, **options)
        o = o[0] if isinstance(o, tuple) else o
        between()
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.grad(o, leaves, torch.ones_like(o))
        return struct.unpack("=7Q", noted[-2][-2]), struct.unpack("=7Q", noted[-1][-3])

    def move():
        leaves[1].data = leaves[1].detach().clone()

    run()
    found = [run() for _ in range(2)]
    thread = threading.Thread(target=lambda: found.extend(run() for _ in range(3)))
    thread.start(), thread.join()
    workspaces = [(forward[6], backward[6]) for forward, backward in found]
    assert workspaces[0] == workspaces[1] and workspaces[3] == workspaces[4] and not {*workspaces[0]} & {*workspaces[4]}
    assert run(move)[1][2] == leaves[1].data_ptr() != found[0][1][2]
    rearranged = lambda tensor: tensor.transpose(0, 1).contiguous().transpose(0, 1)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), rearranged):
        run()
    strides = _library.STRUCTS["Strides"].from_buffer_copy(problem_of(noted[-1][2])["Layout"]["k"])
    assert strides.row == rearranged(leaves[1]).stride(-3) != leaves[1].stride(-3)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [70, 4000])  # small workspaces are used again, large ones are not
def test_gradients_on_two_streams_and_in_a_graph(rows):
    leaves, d_o = inputs(rows, grad=True), inputs(rows)[0]
    run = lambda: torch.autograd.grad(flashbook.flash_attn_func(*leaves, deterministic=True), leaves, d_o)
    right = run()
    streams, graph = [torch.cuda.Stream() for _ in range(2)], torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    found = []
    for stream in streams * 3:
        with torch.cuda.stream(stream):
            found.append(run())
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=streams[0]):
        captured = run()
    for gradient in captured:
        gradient.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[1]):  # the graph has a workspace of its own
        graph.replay()
    with torch.cuda.stream(streams[0]):
        found.append(run())
    torch.cuda.synchronize()
    for gradients in (*found, captured):
        assert all(torch.equal(one, other) for one, other in zip(gradients, right))


@pytest.mark.kernels
@pytest.mark.parametrize("most", [2047, 2048])
def test_an_unwanted_log_sum_exp_goes_where_there_is_room_for_it(most, noted, monkeypatch):
    monkeypatch.setattr(ops, "SCRATCH", most)
    function, tensors, options = remembered(flashbook, "packed")  # 4 heads and 128 queries
    function(*tensors, **options), function(*tensors, **options)
    unread, = ops._scratch.values()
    place = struct.unpack("=7Q", noted[-1][-2])[5]
    assert (place == unread.data_ptr()) == (most == 2048)


@pytest.mark.kernels
def test_hooks_checkpoints_and_inference_mode():
    leaves = inputs(grad=True)
    with torch.inference_mode():
        flashbook.flash_attn_func(*leaves, causal=True)
    call = lambda *tensors: flashbook.flash_attn_func(*tensors, causal=True, deterministic=True)
    right = torch.autograd.grad(call(*leaves).float().square().sum(), leaves)
    rearranged = lambda tensor: tensor.transpose(0, 1).contiguous().transpose(0, 1)  # saved tensors return with other strides
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), rearranged):
        o = call(*leaves)
    by_hooks = torch.autograd.grad(o.float().square().sum(), leaves)
    by_checkpoint = torch.autograd.grad(torch.utils.checkpoint.checkpoint(call, *leaves, use_reentrant=False).float().square().sum(), leaves)
    for one, hooked, again in zip(right, by_hooks, by_checkpoint):
        assert torch.equal(one, hooked) and torch.equal(one, again)
    o = call(*leaves)
    with torch.no_grad():
        leaves[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(o.float().sum(), leaves)


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
    o = torch.ops.flashbook.forward(*(tensor.transpose(1, 2) for tensor in (q, k, v)), 0.125, -1, 0, 0.0, None, None, None, False, 0, 0)[0]
    (gradient,) = torch.autograd.grad(o.float().square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        torch.autograd.grad(gradient.sum(), q)


def test_the_readme_runs():
    readme = (pathlib.Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    subprocess.run([sys.executable, "-c", readme.partition("```python\n")[2].partition("```")[0]], check=True, timeout=120)


@pytest.mark.gpu
def test_streams():
    """A call is queued on the current stream and returns without waiting."""
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
            assert not stream.query()  # the call returned while the device was still busy
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
@pytest.mark.parametrize("queries", [1, 300, 40_000])  # chapter 8, chapter 5, and more log-sum-exps than the scratch holds
def test_outputs_alone(queries):
    """Without gradients and log-sum-exps a repeated call takes the fastest path: the same bits on every stream and in a graph, and earlier results
    are not overwritten."""
    q, (_, k, v) = inputs(queries)[0], inputs(300)
    right, lse, _ = flashbook.flash_attn_func(q, k, v, return_attn_probs=True)
    kept = lse.clone()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    for where in (torch.cuda.current_stream(), stream):
        with torch.cuda.stream(where):
            for _ in range(3):
                assert torch.equal(flashbook.flash_attn_func(q, k, v), right)
    with torch.cuda.graph(graph, stream=stream):
        captured = flashbook.flash_attn_func(q, k, v)
    captured.fill_(float("nan"))
    graph.replay()
    shifted = torch.empty(q.numel() + 1, dtype=q.dtype, device=q.device)[1:].view(q.shape).copy_(q)
    assert torch.equal(flashbook.flash_attn_func(shifted, k, v), right)
    assert torch.equal(captured, right) and torch.equal(lse, kept)


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
@pytest.mark.parametrize("current", [0, 1])
def test_two_devices(current):
    """Kernels run on the tensors' device and its stream, whichever device is the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    lengths, first = (torch.tensor(of, dtype=torch.int32) for of in ([30, 300], [0, 100, 300]))
    calls = {
        "full": lambda q, k, v: flashbook.flash_attn_func(q, k, v, deterministic=True),
        "causal": lambda q, k, v: flashbook.flash_attn_func(q, k, v, causal=True, deterministic=True),
        "window": lambda q, k, v: flashbook.flash_attn_func(q, k, v, window_size=(40, 0)),
        "packed": lambda q, k, v: flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first.to(q.device), first.to(q.device), 200, 200),
        "cache": lambda q, k, v: flashbook.flash_attn_with_kvcache(q[:, :1].detach(), k.detach(), v.detach(), cache_seqlens=lengths.to(q.device)),
        "step": lambda q, k, v: flashbook.attention(*(tensor.transpose(1, 2) for tensor in (q, k, v)), chapter=4, step="split_q"),
    }
    found = {}
    with torch.cuda.device(current):
        torch.manual_seed(1)
        leaves = [tensor.cpu() for tensor in inputs(300)]
        for device in ("cuda:0", "cuda:1"):
            stream = torch.cuda.Stream(device)
            there = [leaf.to(device).requires_grad_() for leaf in leaves]
            late = [torch.zeros_like(leaf).requires_grad_() for leaf in there]
            torch.cuda.synchronize(device)
            for name, call in calls.items():
                for _ in range(2):  # the second call is remembered
                    with torch.no_grad():
                        for leaf in late:
                            leaf.zero_()
                    torch.cuda.synchronize(device)
                    with torch.cuda.stream(stream):
                        torch.cuda._sleep(20_000_000)
                        with torch.no_grad():
                            for leaf, value in zip(late, there):
                                leaf.copy_(value)
                        with torch.cuda.device(current):  # the stream stays current on its own device
                            o = call(*late)
                            gradients = torch.autograd.grad(o.float().square().sum(), late) if name not in ("cache", "step") else ()
                            assert torch.cuda.current_device() == current and o.device == torch.device(device)
                    stream.synchronize()
                    found.setdefault(name, []).append([tensor.detach().cpu() for tensor in (o, *gradients)])
    for name, runs in found.items():
        for run in runs[1:]:
            for one, other in zip(runs[0], run):
                exact = name in ("full", "causal")  # other gradients are summed in arbitrary order
                torch.testing.assert_close(one, other, atol=0 if exact else 2e-2, rtol=0 if exact else 1e-2, msg=name)


@pytest.mark.gpu
def test_a_thread_for_each_device():
    from concurrent.futures import ThreadPoolExecutor

    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    tensors = inputs(300)

    def run(device):
        found = []
        with torch.cuda.device(device):
            leaves = [tensor.to(device).requires_grad_() for tensor in tensors]
            for _ in range(50):
                o = flashbook.flash_attn_func(*leaves, causal=True, deterministic=True)
                found.append([tensor.cpu() for tensor in (o.detach(), *torch.autograd.grad(o.float().square().sum(), leaves))])
        return found

    with ThreadPoolExecutor(2 * len(devices)) as pool:
        runs = [run for runs in pool.map(run, devices * 2) for run in runs]
    assert all(torch.equal(*pair) for run in runs for pair in zip(run, runs[0]))
