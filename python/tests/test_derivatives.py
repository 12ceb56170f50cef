"""Second derivatives, and derivatives of the log-sum-exp and of rows that belong to no sequence: each is right, or raises an error."""

import math

import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from conftest import DEVICE
from reference import assert_as_good_as_plain, attention

import flashbook
from flashbook import flash_attn_3

ROWS, HEADS = 16, 2
NO_SECOND = "second derivatives are not supported"
CU_SEQLENS = torch.tensor([0, 5, ROWS], device=DEVICE, dtype=torch.int32)


def dense(function, **options):
    return lambda q, k, v: function(q, k, v, **options)


def by_head(function, **options):
    return lambda q, k, v: function(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)


def packed(function, **options):
    return lambda q, k, v: function(q[0], k[0], v[0], CU_SEQLENS, CU_SEQLENS, ROWS, ROWS, **options)


def operator(q, k, v):
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    return torch.ops.flashbook.forward(q, k, v, 0.125, -1, -1, 0.0, None, None, None, False, 0, 0)[0]


@pytest.fixture(scope="module", autouse=True)
def no_group_afterwards():
    """The error without a process group is tested elsewhere."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def in_a_ring(q, k, v):
    if not dist.is_initialized():
        dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    return flashbook.context_parallel(q, k, v, causal=True)


CALLS = {
    "flash_attn_func": dense(flashbook.flash_attn_func),
    "deterministic": dense(flashbook.flash_attn_func, deterministic=True),
    "window": dense(flashbook.flash_attn_func, window_size=(5, 0)),
    "softcap": dense(flashbook.flash_attn_func, softcap=5.0),
    "dropout": dense(flashbook.flash_attn_func, dropout_p=0.1),
    "slopes": dense(flashbook.flash_attn_func, alibi_slopes=torch.ones(HEADS, device=DEVICE)),
    "qkvpacked": lambda q, k, v: flashbook.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2)),
    "kvpacked": lambda q, k, v: flashbook.flash_attn_kvpacked_func(q, torch.stack([k, v], 2)),
    "varlen": packed(flashbook.flash_attn_varlen_func),
    "varlen_qkvpacked": lambda q, k, v: flashbook.flash_attn_varlen_qkvpacked_func(torch.stack([q[0], k[0], v[0]], 1), CU_SEQLENS, ROWS),
    "varlen_kvpacked": lambda q, k, v: flashbook.flash_attn_varlen_kvpacked_func(q[0], torch.stack([k[0], v[0]], 1), CU_SEQLENS, CU_SEQLENS, ROWS, ROWS),
    "flash_attn_3": dense(flash_attn_3.flash_attn_func),
    "flash_attn_3_lse": lambda q, k, v: flash_attn_3.flash_attn_func(q, k, v, return_attn_probs=True)[1],
    "flash_attn_3_qkvpacked": lambda q, k, v: flash_attn_3.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2)),
    "flash_attn_3_varlen": packed(flash_attn_3.flash_attn_varlen_func),
    "scaled_dot_product_attention": by_head(flashbook.scaled_dot_product_attention),
    "attention": by_head(flashbook.attention),
    "bias": by_head(flashbook.attention, bias=torch.ones(HEADS, 9, device=DEVICE)),
    "padded": lambda q, k, v: flashbook.flash_attn_func(q[..., :60], k[..., :60], v[..., :60]),
    "checkpoint": lambda q, k, v: torch.utils.checkpoint.checkpoint(flashbook.flash_attn_func, q, k, v, use_reentrant=False),
    "operator": operator,
    "context_parallel": in_a_ring,
}


def projections():
    """Returns x and weights, and the queries, keys and values computed from them."""
    x = torch.randn(1, ROWS, 1, 64, device=DEVICE, dtype=torch.float16, requires_grad=True)
    weights = [(torch.randn(64, HEADS * 64, device=DEVICE, dtype=torch.float16) / 8).requires_grad_() for _ in range(3)]
    return x, weights, [(x @ weight).view(1, ROWS, HEADS, 64) for weight in weights]


@pytest.mark.kernels
@pytest.mark.parametrize("name", CALLS)
def test_a_second_derivative_is_refused(name):
    """Forces are a gradient with respect to positions, and a loss on them is differentiated again. PyTorch's once_differentiable does not catch
    this if dO needs no gradient, and drops the part that goes through q, k and v."""
    for _ in range(2):  # the second call is a remembered one
        x, _, inputs = projections()
        (force,) = torch.autograd.grad(CALLS[name](*inputs).sum(), x, create_graph=True)
        assert force.isfinite().all()
        with pytest.raises(NotImplementedError, match=NO_SECOND):
            force.pow(2).sum().backward()


@pytest.mark.kernels
@pytest.mark.parametrize("wanted", range(4))
def test_a_second_derivative_is_refused_by_each_of_its_inputs(wanted):
    """Only one of q, k, v and dO requires the second derivative; the first derivative is with respect to another tensor."""
    tensors = [torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16) for _ in range(4)]
    tensors[wanted].requires_grad_()
    first = tensors[(wanted + 1) % 3].requires_grad_()
    *inputs, d_o = tensors
    for _ in range(2):
        (gradient,) = torch.autograd.grad(flashbook.flash_attn_func(*inputs), first, d_o, create_graph=True)
        with pytest.raises(NotImplementedError, match=NO_SECOND):
            torch.autograd.grad(gradient.sum(), tensors[wanted])


@pytest.mark.kernels
def test_create_graph_changes_no_first_derivative():
    _, _, inputs = projections()
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    for _ in range(2):
        o = flashbook.flash_attn_func(*leaves, deterministic=True)  # type: ignore[misc]
        right = torch.autograd.grad(o.float().square().sum(), leaves, retain_graph=True)
        with torch.autograd.set_detect_anomaly(True):
            found = torch.autograd.grad(o.float().square().sum(), leaves, create_graph=True)
        assert all(map(torch.equal, found, right))


@pytest.mark.kernels
@pytest.mark.parametrize("function", [flashbook.flash_attn_func, flash_attn_3.flash_attn_func])
def test_a_compiled_second_derivative_is_refused(function):
    """PyTorch's compiled backward pass detaches the views that it saved, and so loses second derivatives."""
    x, _, inputs = projections()
    for tensors in (inputs, [tensor.clone() for tensor in inputs]):
        torch.compiler.reset()
        with pytest.raises((NotImplementedError, RuntimeError), match=r"create_graph is True in a compiled call|double backward"):
            (force,) = torch.autograd.grad(torch.compile(function, backend="aot_eager", fullgraph=True)(*tensors).sum(), x, create_graph=True)
            force.pow(2).sum().backward()


# ---- the log-sum-exp ---------------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("with_o", [True, False])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("options", [{}, {"causal": True, "deterministic": True}, {"window_size": (20, 3)}, {"window_size": (20, 3), "deterministic": True},
                                     {"softcap": 3.0}], ids=str)


def test_the_log_sum_exp_has_its_gradient(options, head_dim, with_o):
    """dS = P * (dP - D + d_lse): a loss on the log-sum-exp, such as a z-loss, reaches q and k."""
    leaves = [torch.randn(2, rows, heads, head_dim, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for rows, heads in ((70, 4), (90, 2), (90, 2))]
    d_o, d_lse = torch.randn_like(leaves[0]), torch.randn(2, 70, 4, device=DEVICE).transpose(1, 2)
    by_reference = {"window" if name == "window_size" else name: value for name, value in options.items() if name != "deterministic"}

    def loss(o, lse, kind):
        return (o * d_o.to(kind)).sum() * with_o + (lse * d_lse.to(kind)).sum()

    def written_out(kind):
        copies = [leaf.detach().to(kind).requires_grad_() for leaf in leaves]
        o, lse = attention(*copies, **by_reference)
        return torch.autograd.grad(loss(o, lse, kind), copies)

    for _ in range(2):
        o, lse, _ = flashbook.flash_attn_func(*leaves, return_attn_probs=True, **options)  # type: ignore[misc]
        assert lse.requires_grad
        found = torch.autograd.grad(loss(o.float(), lse, torch.float32), leaves)
        for got, exact, plain in zip(found, written_out(torch.float64), written_out(torch.bfloat16)):
            assert_as_good_as_plain(got, exact, plain, factor=3, floor=2e-4)


@pytest.mark.kernels
def test_every_function_gives_the_log_sum_exps_gradient():
    q, k, v = (torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16, requires_grad=True) for _ in range(3))
    document = torch.tensor([0] * 5 + [1] * (ROWS - 5), device=DEVICE)
    qkv = lambda dim, *tensors: torch.stack(tensors, dim)
    as_packed = (CU_SEQLENS, CU_SEQLENS, ROWS, ROWS)
    calls = [
        (lambda: flashbook.flash_attn_func(q, k, v, return_attn_probs=True), None),
        (lambda: flashbook.flash_attn_qkvpacked_func(qkv(2, q, k, v), return_attn_probs=True), None),
        (lambda: flashbook.flash_attn_kvpacked_func(q, qkv(2, k, v), return_attn_probs=True), None),
        (lambda: flash_attn_3.flash_attn_func(q, k, v, return_attn_probs=True), None),
        (lambda: flash_attn_3.flash_attn_qkvpacked_func(qkv(2, q, k, v), return_attn_probs=True), None),
        (lambda: flashbook.attention(*(of.transpose(1, 2) for of in (q, k, v)), return_lse=True), None),
        (lambda: flashbook.attention(*(of.transpose(1, 2) for of in (q, k, v)), return_lse=True, bias=torch.zeros(HEADS, 1, device=DEVICE)), None),
        (lambda: flashbook.attention(*(of.transpose(1, 2) for of in (q, k, v)), return_lse=True,
                                     bias=torch.zeros(HEADS, 1, device=DEVICE, requires_grad=True)), None),
        (lambda: flashbook.flash_attn_varlen_func(q[0], k[0], v[0], *as_packed, return_attn_probs=True), document),
        (lambda: flashbook.flash_attn_varlen_qkvpacked_func(qkv(1, q[0], k[0], v[0]), CU_SEQLENS, ROWS, return_attn_probs=True), document),
        (lambda: flashbook.flash_attn_varlen_kvpacked_func(q[0], qkv(1, k[0], v[0]), *as_packed, return_attn_probs=True), document),
        (lambda: flash_attn_3.flash_attn_varlen_func(q[0], k[0], v[0], *as_packed, return_attn_probs=True), document),
    ]
    weights = torch.randn(1, HEADS, ROWS, device=DEVICE)
    for number, (call, call_document) in enumerate(calls):
        found = torch.autograd.grad((call()[1].view(1, HEADS, ROWS) * weights).sum(), (q, k))
        copies = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
        right = torch.autograd.grad((attention(*copies, document=call_document)[1] * weights).sum(), copies[:2])  # type: ignore[misc]
        for got, exact in zip(found, right):
            torch.testing.assert_close(got.double(), exact, atol=2e-3, rtol=2e-3, msg=lambda text, number=number: f"call {number}: {text}")


@pytest.mark.kernels
def test_the_log_sum_exp_of_rows_that_see_nothing_has_no_gradient():
    leaves = [torch.randn(1, rows, HEADS, 64, device=DEVICE, dtype=torch.float16, requires_grad=True) for rows in (20, 8, 8)]
    _, lse = flash_attn_3.flash_attn_func(*leaves, causal=True, return_attn_probs=True)  # type: ignore[misc]
    assert lse[:, :, :12].eq(-math.inf).all()
    found = torch.autograd.grad(lse, leaves, torch.full_like(lse, math.nan).index_fill(2, torch.arange(12, 20, device=DEVICE), 1.0))
    assert all(gradient.isfinite().all() for gradient in found) and found[0][:, :12].eq(0).all()


@pytest.mark.kernels
def test_a_compiled_call_gives_the_log_sum_exps_gradient():
    torch.compiler.reset()
    leaves = [torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16, requires_grad=True) for _ in range(3)]

    def loss(q, k, v):
        o, lse, _ = flashbook.flash_attn_func(q, k, v, return_attn_probs=True, deterministic=True)
        return o.float().square().sum() + lse.square().sum()

    right = torch.autograd.grad(loss(*leaves), leaves)
    assert all(map(torch.equal, torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(*leaves), leaves), right))


# ---- other kinds of derivatives ----------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("of", range(3))
def test_a_forward_mode_derivative_is_refused(name, of):
    inputs = [torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16) for _ in range(3)]
    tangents = [torch.ones_like(tensor) for tensor in inputs]
    with pytest.raises((NotImplementedError, RuntimeError), match=r"forward-mode|forward mode|jvp"), torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(tensor, tangent) if i == of else tensor for i, (tensor, tangent) in enumerate(zip(inputs, tangents))]
        CALLS[name](*duals)


@pytest.mark.kernels
@pytest.mark.parametrize("module", [flashbook, flash_attn_3])
@pytest.mark.parametrize("of", range(3))
def test_a_forward_mode_derivative_of_a_cache_is_refused(module, of):
    inputs = [torch.randn(1, rows, HEADS, 64, device=DEVICE, dtype=torch.float16) for rows in (1, ROWS, ROWS)]
    with pytest.raises(NotImplementedError, match="forward-mode"), torch.autograd.forward_ad.dual_level():
        inputs[of] = torch.autograd.forward_ad.make_dual(inputs[of], torch.ones_like(inputs[of]))
        module.flash_attn_with_kvcache(*inputs)


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{}, {"window_size": (5, 0)}, {"softcap": 5.0}], ids=str)
def test_transforms_are_right_or_refuse(options):
    """Tests torch.func.grad, a vmap of it, and a batch of dO."""
    leaves = [torch.randn(2, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16, requires_grad=True) for _ in range(3)]
    call = lambda q, k, v: flashbook.flash_attn_func(q, k, v, deterministic=True, **options)
    loss = lambda q, k, v: call(q, k, v).float().square().sum()
    plain = [leaf.detach() for leaf in leaves]
    right = torch.autograd.grad(loss(*leaves), leaves)

    def right_or_refused(function, expected):
        try:
            found = function()
        except (RuntimeError, NotImplementedError) as error:
            assert str(error)
        else:
            for got, want in zip(found, expected):
                torch.testing.assert_close(got, want)

    right_or_refused(lambda: torch.func.grad(loss, (0, 1, 2))(*plain), right)
    right_or_refused(lambda: torch.func.vmap(torch.func.grad(loss, (0, 1, 2)))(*(tensor[:, None] for tensor in plain)), [of[:, None] for of in right])
    for _ in range(2):
        o = call(*leaves)
        d_o = torch.randn(3, *o.shape, device=DEVICE, dtype=o.dtype)
        one_by_one = [torch.stack(of) for of in zip(*(torch.autograd.grad(o, leaves, one, retain_graph=True) for one in d_o))]
        for got, want in zip(torch.autograd.grad(o, leaves, d_o, is_grads_batched=True), one_by_one):
            torch.testing.assert_close(got, want)


@pytest.mark.kernels
def test_a_tensor_of_a_transform_that_has_ended_is_a_tensor():
    plain = torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16)
    left = []

    def double(x):
        left.append(x * 2)
        return left[0].sum()

    torch.func.grad(double)(plain)
    leaf = plain.clone().requires_grad_()
    gradient = lambda q: torch.autograd.grad(flashbook.flash_attn_func(q, leaf, plain, deterministic=True).sum(), leaf)[0]
    right = gradient(plain * 2)
    assert all(torch.equal(gradient(left[0]), right) for _ in range(2))


@pytest.mark.kernels
def test_a_second_derivative_by_transforms_is_refused():
    q, k, v = (torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16) for _ in range(3))
    loss = lambda q: flashbook.flash_attn_func(q, k, v).float().square().sum()
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.func.grad(lambda q: torch.func.grad(loss)(q).float().square().sum())(q)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.func.hessian(loss)(q)


@pytest.mark.kernels
def test_arrays_without_a_gradient_are_refused_if_they_want_one():
    q, k, v = (torch.randn(1, ROWS, HEADS, 64, device=DEVICE, dtype=torch.float16) for _ in range(3))
    slopes = torch.ones(HEADS, device=DEVICE, requires_grad=True)
    scales = torch.ones(1, HEADS, device=DEVICE, requires_grad=True)
    fp8 = [tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v)]
    for call, name in ((lambda: flashbook.flash_attn_func(q, k, v, alibi_slopes=slopes), "alibi_slopes"),
                       (lambda: flashbook.flash_attn_with_kvcache(q, k, v, alibi_slopes=slopes), "alibi_slopes"),
                       (lambda: flashbook.flash_attn_with_kvcache(q, k, v, s_aux=slopes), "s_aux"),
                       (lambda: flash_attn_3.flash_attn_func(*fp8, k_descale=scales), "k_scale"),  # type: ignore[misc]
                       (lambda: flash_attn_3.flash_attn_with_kvcache(q, *fp8[1:], v_descale=scales), "v_descale")):  # type: ignore[misc]
        with pytest.raises(NotImplementedError, match=f"{name} requires a gradient"):
            call()
        with torch.no_grad():
            call()


@pytest.mark.kernels
def test_no_gradient_goes_through_the_operator_of_a_cache():
    q, k, v = (torch.randn(1, HEADS, ROWS, 64, device=DEVICE, dtype=torch.float16, requires_grad=True) for _ in range(3))
    o, _ = torch.ops.flashbook.decode(q, k, v, None, None, 0.125)
    with pytest.raises(NotImplementedError, match="a cache has no gradient"):
        o.sum().backward()


# ---- rows after the last sequence --------------------------------------------------------------------------------------------------


@pytest.fixture
def poisoned():
    """Fills empty allocations with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (9, 4)}, {"softcap": 5.0}, {"dropout_p": 0.2}, {"alibi_slopes": True}], ids=str)
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("begins", [([0, 100, 130], [0, 60, 90]), ([0, 0], [0, 0]), ([0, 64, 64, 150], [0, 0, 77, 110])], ids=str)
def test_rows_behind_the_last_sequence_are_zeros(begins, head_dim, options, poisoned):
    """A buffer may be longer than its sequences, and a projection's weight gradient is summed over all rows."""
    first_query, first_key = (torch.tensor(of, device=DEVICE, dtype=torch.int32) for of in begins)
    q, k, v = (torch.randn(rows, heads, head_dim, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for rows, heads in ((150, 4), (110, 2), (110, 2)))
    options = {name: torch.rand(4, device=DEVICE) if name == "alibi_slopes" else value for name, value in options.items()}
    o, lse = flashbook.flash_attn_varlen_func(q, k, v, first_query, first_key, 100, 60, **options), None
    if "dropout_p" not in options:
        o, lse, _ = flashbook.flash_attn_varlen_func(q, k, v, first_query, first_key, 100, 60, return_attn_probs=True, **options)
    queries, keys = begins[0][-1], begins[1][-1]
    found = torch.autograd.grad(o, (q, k, v), torch.randn_like(o))
    for tensor, end in ((o, queries), (found[0], queries), (found[1], keys), (found[2], keys)):
        assert tensor.isfinite().all() and tensor[end:].eq(0).all()
    assert lse is None or lse[:, queries:].eq(math.inf).all()
