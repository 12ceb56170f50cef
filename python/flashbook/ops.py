"""The operators torch.ops.flashbook.forward, backward and decode.

Tensors are views [batch, heads, seqlen, head_dim], whatever their strides. What a call needs besides pointers (checks, the C structs, the
size of the workspace) is worked out once for all calls of the same sizes, strides, types and options, and kept as a `Plan`. Kernels read
tensors where they lie. Copied are rows that are not 16-byte aligned, rows whose elements do not lie side by side, rows that overlap (of
expanded tensors), and for chapters 1 to 4 all that is not [batch, heads, seqlen, head_dim] without gaps.
"""

import contextlib
import ctypes
import dataclasses
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flashbook import _library
from flashbook._library import Cache, Gradients, Mask, Shape, Tensors

TYPES = {torch.float32: _library.F32, torch.float16: _library.F16, torch.bfloat16: _library.BF16, torch.float8_e4m3fn: _library.E4M3}
HEAD_DIMS = (64, 128, 256)
ON_CPU, HOPPER, BACKWARD, DECODING, MASKS = 2, 5, 7, 8, 9  # chapters
LAST_COMPACT = 4  # chapters up to this one take [batch, heads, seqlen, head_dim] without gaps only
COUNTING = (HOPPER, DECODING)  # their workspace is 0 before the first call with it, and after every call
PACKED, RANGES, FUNCTIONS, GRADIENT = 2, 3, 5, 6  # steps of chapter 9
FAST, DETERMINISTIC = 5, 6  # steps of chapter 7
EQUAL_WORK = 6  # of chapter 8
MOST_PLANS = 4096

Strides = tuple[int, int, int, int]


@dataclasses.dataclass
class Plan:
    """How a call goes."""

    copies: bool = False  # a tensor has to be copied first: then the call has another plan
    compact: bool = False  # to [batch, heads, seqlen, head_dim] without gaps
    empty: bool = False  # there is nothing to launch
    chapter: int = 0
    step: int = 0
    shape: Shape | None = None
    address: int = 0  # of shape
    mask: Mask | None = None  # but for its pointers
    workspace: int = 0  # bytes
    strides: tuple[Strides, ...] = ()  # of the results
    dtype: torch.dtype = torch.float32  # of the results
    index: int = -1  # of the device, -1: the CPU
    simulated: bool = False


_plans: dict[object, Plan] = {}
_kept: dict[tuple[int, int, int], Tensor] = {}  # workspaces that count, by device, stream and chapter


# ---- what a call is refused for ----------------------------------------------------------------------------------------------------


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises ValueError or TypeError if these cannot be queries, keys and values, [batch, heads, seqlen, head_dim]."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions here: give 4, batch, heads, seqlen and head_dim")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(f"q is {q.dtype} on {q.device} and {name} is {tensor.dtype} on {tensor.device}: give one type on one device")
        if any(size > _library.MOST for size in tensor.shape):
            raise ValueError(f"{name} is {tuple(tensor.shape)}: give dimensions below 2^31")
    if q.dtype not in TYPES:
        raise TypeError(f"q is {q.dtype}: give float16 or bfloat16. Chapters 1 and 2 take float32 too, and chapter 6 float8_e4m3fn")
    if q.shape[3] not in HEAD_DIMS:
        raise ValueError(f"head_dim is {q.shape[3]}: the kernels have 64, 128 and 256. Pad q, k and v with columns of 0 and give softmax_scale, "
                         "or use FlashAttention, which takes every multiple of 8 up to 256")
    if k.shape != v.shape:
        raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}: give one shape")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(f"q is {tuple(q.shape)} and k is {tuple(k.shape)}: give the same batch and head_dim")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise ValueError(f"there are {q.shape[1]} query heads and {k.shape[1]} key heads: give key heads whose number divides that of query heads")


def check_array(name: str, tensor: Tensor, like: Tensor, dtype: torch.dtype) -> None:
    """Raises ValueError if this is not an array that kernels read beside q."""
    if tensor.dtype != dtype or tensor.device != like.device or not tensor.is_contiguous():
        raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}{'' if tensor.is_contiguous() else ', with gaps'}: "
                         f"give {dtype} on {like.device}, without gaps")


def check_machine(device: torch.device, chapter: int) -> None:
    """Raises if the library's kernels cannot reach tensors there."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {device}: move q, k and v to a CUDA device, or to the CPU")
    has_kernels = _library.chapters()[chapter][1]
    if device.type == "cpu" and has_kernels and not _library.is_simulated():
        raise RuntimeError(f"chapter {chapter} has kernels for a GPU, and q is on the CPU: move q, k and v to a CUDA device, or install the package "
                           "with -C cmake.define.FLASHBOOK_MACHINE=sim, which runs kernels in the simulator. Without either, chapter 2 computes "
                           "full and causal attention")
    if device.type == "cuda" and not has_kernels:
        raise ValueError(f"chapter {chapter} is CPU code, and q is on {device}: move q, k and v to the CPU, or choose another chapter")
    if device.type == "cuda" and _library.is_simulated():
        raise RuntimeError(f"q is on {device}, and the library was built without nvcc: install the package again with nvcc on PATH, or move q, k "
                           "and v to the CPU, where the simulator runs the kernels")


# ---- where tensors lie -------------------------------------------------------------------------------------------------------------


def result_strides(like: Tensor) -> Strides:
    """[batch, seqlen, heads, head_dim] without gaps if `like` has heads inside tokens, else [batch, heads, seqlen, head_dim]."""
    _, heads, rows, columns = like.shape
    if like.stride(1) < like.stride(2):
        return heads * rows * columns, columns, heads * columns, 1
    return heads * rows * columns, rows * columns, columns, 1


def result(like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(like.shape, result_strides(like), dtype=dtype, device=like.device)


def is_readable(tensor: Tensor, compact: bool) -> bool:
    """Whether kernels can read it where it lies, if it begins at a multiple of 16 bytes."""
    if compact or tensor.numel() == 0:
        return bool(tensor.is_contiguous())
    multiple, reached = 16 // tensor.element_size(), tensor.shape[3]
    for stride, count in sorted(zip(tensor.stride()[:3], tensor.shape[:3])):
        if count > 1:
            if stride % multiple or stride < reached:
                return False
            reached += (count - 1) * stride
    return bool(tensor.stride(3) == 1)


def readable(tensor: Tensor, compact: bool) -> Tensor:
    """The tensor, or a copy of it that kernels can read."""
    if is_readable(tensor, compact) and tensor.data_ptr() % 16 == 0:
        return tensor
    if compact:
        return tensor.clone(memory_format=torch.contiguous_format)
    return result(tensor, tensor.dtype).copy_(tensor)


def set_strides(struct: Shape | Gradients, **tensors: tuple[Strides, tuple[int, ...]]) -> None:
    """Of each tensor its strides and sizes. Along an axis of one place nothing is said of the stride, so a legal one is given."""
    for name, (strides, sizes) in tensors.items():
        for axis, stride, count in zip(("batch", "head", "row"), strides, sizes):
            setattr(struct, f"{name}_{axis}_stride", stride if count > 1 else sizes[3])


# ---- plans -------------------------------------------------------------------------------------------------------------------------


def plan_of(key: object, make: Callable[[], Plan]) -> Plan:
    plan = make()
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan


def is_masked(left: int, right: int, softcap: float, slopes: bool, documents: int) -> bool:
    """Whether it takes chapter 9."""
    return left >= 0 or right > 0 or softcap > 0 or slopes or documents >= 0


def chosen(q: Tensor, left: int, right: int, softcap: float, slopes: bool, documents: int, chapter: int, step: int) -> tuple[int, int]:
    """Chapter and step of a forward pass."""
    if chapter:
        known = _library.chapters()
        if chapter not in known:
            raise ValueError(f"there is no chapter {chapter}: give one of {', '.join(map(str, known))}")
        last = {MASKS: FUNCTIONS, DECODING: EQUAL_WORK}.get(chapter, known[chapter][0])
        return chapter, step or last
    if softcap > 0 or slopes:
        return MASKS, FUNCTIONS
    if is_masked(left, right, softcap, slopes, documents):
        return MASKS, PACKED if documents >= 0 else RANGES
    if q.device.type == "cpu":
        return ON_CPU, 5
    return (DECODING, EQUAL_WORK) if q.shape[2] == 1 else (HOPPER, 5)


def planned(plan: Plan, tensors: tuple[Tensor, ...], q: Tensor, k: Tensor, scale: float, left: int, right: int, softcap: float, slopes: bool,
            documents: int) -> Plan:
    """What forward and backward passes have in common. `plan` has the chapter and the step."""
    check_machine(q.device, plan.chapter)
    if not scale > 0 or scale == float("inf"):
        raise ValueError(f"softmax_scale is {scale}: give a finite number above 0")
    plan.compact = plan.chapter <= LAST_COMPACT
    plan.copies = not all(is_readable(tensor, plan.compact) for tensor in tensors)
    plan.empty = q.numel() == 0 or k.numel() == 0 or documents == 0
    plan.index = -1 if q.device.type == "cpu" else q.device.index
    plan.simulated = plan.index < 0 and _library.chapters()[plan.chapter][1]
    if plan.copies or plan.empty:
        return plan
    masked = is_masked(left, right, softcap, slopes, documents)
    plan.shape = Shape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], int(right == 0 and not masked), TYPES[q.dtype], scale)
    plan.address = ctypes.addressof(plan.shape)
    if not plan.compact:
        q_, k_, v_, *_ = tensors
        set_strides(plan.shape, q=(q_.stride(), q_.shape), k=(k_.stride(), k_.shape), v=(v_.stride(), v_.shape),
                    o=(result_strides(q_), q_.shape))
    c = _library.library()
    if masked:
        plan.mask = Mask(window_left=left, window_right=right, softcap=softcap, documents=max(0, documents))
        if documents > 0:
            plan.mask.first_query = plan.mask.first_key = 16  # it asks only whether they are there
        if slopes:
            plan.mask.slopes = 16
        plan.workspace = c.flashbook_masked_workspace_bytes(plan.chapter, plan.step, plan.address, ctypes.addressof(plan.mask))
    else:
        plan.workspace = c.flashbook_workspace_bytes(plan.chapter, plan.step, plan.address)
    if plan.workspace < 0:
        _library.check(_library.BAD_ARGUMENT)
    return plan


class Simulated:
    """Copies of CPU tensors where the simulator's kernels may read and write, which is not all of the host's memory."""

    def __init__(self) -> None:
        self.copies: dict[int, tuple[int, int]] = {}  # by address: the copy's address, and bytes

    def __call__(self, tensor: Tensor) -> int:
        """The address of the tensor's copy."""
        place = tensor.data_ptr()
        size = tensor.element_size() * (1 + sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride())))
        if place in self.copies and self.copies[place][1] >= size:  # q may be k
            return self.copies[place][0]
        address = _library.library().flashbook_allocate(size)
        if not address:
            _library.check(_library.DEVICE_ERROR)
        ctypes.memmove(address, place, size)
        self.copies[place] = int(address), size
        return int(address)

    def bring_back(self, *results: Tensor) -> None:
        for tensor in results:
            ctypes.memmove(tensor.data_ptr(), *self.copies[tensor.data_ptr()])

    def __del__(self) -> None:
        for address, _ in self.copies.values():
            _library.library().flashbook_free(address)


def workspace_of(plan: Plan, device: torch.device, stream: int, address: Callable[[Tensor], int]) -> tuple[int, Tensor | None]:
    """Its address, and what keeps it alive until the launch. A workspace that counts is kept for the calls on the same stream, one after
    another; a CUDA graph has its own."""
    if plan.workspace == 0:
        return 0, None
    if plan.chapter not in COUNTING:
        memory = torch.empty(plan.workspace, dtype=torch.uint8, device=device)
    elif plan.index < 0 or torch.cuda.is_current_stream_capturing():
        memory = torch.zeros(plan.workspace, dtype=torch.uint8, device=device)
    else:
        place = (plan.index, stream, plan.chapter)
        kept = _kept.get(place)
        if kept is None or kept.numel() < plan.workspace:
            kept = _kept[place] = torch.zeros(plan.workspace, dtype=torch.uint8, device=device)
        memory = kept
    return address(memory), memory


def on(plan: Plan) -> Any:
    """Makes the plan's device the current one, if it is not."""
    if plan.index < 0 or torch.cuda.current_device() == plan.index:
        return None
    return torch.cuda.device(plan.index)


def stream_of(plan: Plan) -> int:
    return torch._C._cuda_getCurrentRawStream(plan.index) if plan.index >= 0 else 0


def mask_of(plan: Plan, address: Callable[[Tensor], int], slopes: Tensor | None, first_query: Tensor | None, first_key: Tensor | None) -> Mask:
    assert plan.mask is not None
    mask = Mask.from_buffer_copy(plan.mask)
    for name, array in (("slopes", slopes), ("first_query", first_query), ("first_key", first_key)):
        setattr(mask, name, None if array is None else address(array))
    return mask


def check_arrays(q: Tensor, slopes: Tensor | None, first_query: Tensor | None, first_key: Tensor | None) -> None:
    if slopes is not None:
        check_array("alibi_slopes", slopes, q, torch.float32)
        if slopes.shape != (q.shape[1],):
            raise ValueError(f"alibi_slopes is {tuple(slopes.shape)}: give ({q.shape[1]},), one a head; slopes by batch entry are FlashAttention's")
    for name, array in (("cu_seqlens_q", first_query), ("cu_seqlens_k", first_key)):
        if array is not None:
            check_array(name, array, q, torch.int32)
    if first_query is not None and first_key is not None and (first_query.dim() != 1 or first_query.shape != first_key.shape or len(first_query) < 1):
        raise ValueError(f"cu_seqlens_q is {tuple(first_query.shape)} and cu_seqlens_k is {tuple(first_key.shape)}: give (sequences + 1,) both")


# ---- the calls ---------------------------------------------------------------------------------------------------------------------


def forward_key(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
                first_query: Tensor | None, _first_key: Tensor | None, _deterministic: bool, chapter: int, step: int) -> object:
    return (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, scale, left,
            right, softcap, slopes is None, None if first_query is None else first_query.shape, chapter, step)


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
            first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, chapter: int, step: int) -> tuple[Tensor, Tensor]:
    """O and the log-sum-exp, [batch, heads, seqlen_q]."""
    documents = -1 if first_query is None else first_query.shape[0] - 1
    key = forward_key(q, k, v, scale, left, right, softcap, slopes, first_query, first_key, deterministic, chapter, step)
    plan = _plans.get(key)
    if plan is None:
        def make() -> Plan:
            check_tensors(q, k, v)
            options = (left, right, softcap, slopes is not None, documents)
            made = Plan(strides=(result_strides(q),), dtype=torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype)
            made.chapter, made.step = chosen(q, *options, chapter, step)
            return planned(made, (q, k, v), q, k, scale, *options)

        plan = plan_of(key, make)
    if plan.mask is not None:
        check_arrays(q, slopes, first_query, first_key)
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    if plan.copies or (pointers[0] | pointers[1] | pointers[2]) & 15:
        return forward(*(readable(tensor, plan.compact) for tensor in (q, k, v)), scale, left, right, softcap, slopes, first_query, first_key,
                       deterministic, chapter, step)
    if (guard := on(plan)) is not None:
        with guard:
            return forward(q, k, v, scale, left, right, softcap, slopes, first_query, first_key, deterministic, chapter, step)
    device = q.device
    o = torch.empty_strided(q.shape, plan.strides[0], dtype=plan.dtype, device=device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=device)
    if plan.empty:
        return o.zero_(), lse.fill_(float("-inf"))
    stream = stream_of(plan)
    address: Any = Tensor.data_ptr
    if plan.simulated:
        address = Simulated()
        pointers = address(q), address(k), address(v)
    workspace, _memory = workspace_of(plan, device, stream, address)
    tensors = Tensors(*pointers, address(o), address(lse), workspace)
    c = _library.library()
    if plan.mask is None:
        status = c.flashbook_attention(plan.chapter, plan.step, plan.address, ctypes.addressof(tensors), stream)
    else:
        mask = mask_of(plan, address, slopes, first_query, first_key)
        status = c.flashbook_masked(plan.chapter, plan.step, plan.address, ctypes.addressof(mask), ctypes.addressof(tensors), stream)
    if status:
        _library.check(status)
    if plan.simulated:
        address.bring_back(o, lse)
    return o, lse


def backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, scale: float, left: int, right: int, softcap: float,
             slopes: Tensor | None, first_query: Tensor | None, first_key: Tensor | None, deterministic: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    documents = -1 if first_query is None else first_query.shape[0] - 1
    inputs = (q, k, v, o, d_o)
    key = ("backward", *((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in inputs), scale, left, right, softcap,
           slopes is None, documents, deterministic)
    plan = _plans.get(key)
    if plan is None:
        plan = plan_of(key, lambda: plan_backward(inputs, scale, left, right, softcap, slopes is not None, documents, deterministic))
    if plan.copies or any(tensor.data_ptr() & 15 for tensor in inputs):
        return backward(*(readable(tensor, False) for tensor in (d_o, q, k, v, o)), lse, scale, left, right, softcap, slopes, first_query,
                        first_key, deterministic)
    with on(plan) or contextlib.nullcontext():
        gradients = [torch.empty_strided(tensor.shape, strides, dtype=plan.dtype, device=q.device)
                     for tensor, strides in zip((q, k, v), plan.strides)]
        if plan.empty:
            for gradient in gradients:
                gradient.zero_()
            return gradients[0], gradients[1], gradients[2]
        stream = stream_of(plan)
        address: Any = Simulated() if plan.simulated else Tensor.data_ptr
        workspace, _memory = workspace_of(plan, q.device, stream, address)
        tensors = Tensors(*(address(tensor) for tensor in (q, k, v, o, lse)), workspace)
        pointers = Gradients(*(address(tensor) for tensor in (d_o, *gradients)))
        set_strides(pointers, d_o=(d_o.stride(), d_o.shape), dq=(plan.strides[0], q.shape), dk=(plan.strides[1], k.shape),
                    dv=(plan.strides[2], v.shape))
        addresses = ctypes.addressof(tensors), ctypes.addressof(pointers)
        c = _library.library()
        if plan.mask is None:
            status = c.flashbook_backward(plan.chapter, plan.step, plan.address, *addresses, stream)
        else:
            mask = mask_of(plan, address, slopes, first_query, first_key)
            status = c.flashbook_masked_backward(plan.chapter, plan.step, plan.address, ctypes.addressof(mask), *addresses, stream)
        _library.check(status)
        if plan.simulated:
            address.bring_back(*gradients)
    return gradients[0], gradients[1], gradients[2]


def plan_backward(inputs: tuple[Tensor, ...], scale: float, left: int, right: int, softcap: float, slopes: bool, documents: int,
                  deterministic: bool) -> Plan:
    q, k, v, o, _ = inputs
    check_tensors(q, k, v)
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"q is {q.dtype} and wants a gradient: give float16 or bfloat16, or use torch.nn.functional.scaled_dot_product_attention")
    masked = is_masked(left, right, softcap, slopes, documents)
    if masked and deterministic:
        raise NotImplementedError("deterministic gradients are for full and causal attention (chapter 7, step 6): leave deterministic out, or the "
                                  "window, softcap, slopes and packing")
    plan = Plan(chapter=MASKS, step=GRADIENT) if masked else Plan(chapter=BACKWARD, step=DETERMINISTIC if deterministic else FAST)
    plan.strides, plan.dtype = tuple(result_strides(tensor) for tensor in (q, k, v)), q.dtype
    plan = planned(plan, inputs, q, k, scale, left, right, softcap, slopes, documents)
    if plan.shape is not None:  # of a forward pass by another chapter O may lie otherwise
        set_strides(plan.shape, o=(o.stride(), o.shape))
    return plan


def decode(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, pages: Tensor | None, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention against a cache. k and v are [batch, heads, seqlen, head_dim], or [pages, heads, rows, head_dim]; lengths is [batch], pages
    is [batch, most pages of a sequence]."""
    key = ("decode", q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, scale,
           causal, lengths is None, None if pages is None else pages.shape)
    plan = _plans.get(key)
    if plan is None:
        plan = plan_of(key, lambda: plan_decode(q, k, v, pages, scale, causal))
    for name, array, size in (("cache_seqlens", lengths, q.shape[:1]), ("block_table", pages, None)):
        if array is not None:
            check_array(name, array, q, torch.int32)
            if size is not None and array.shape != size:
                raise ValueError(f"{name} is {tuple(array.shape)}: give {tuple(size)}")
    if plan.copies or (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15:
        return decode(*(readable(tensor, False) for tensor in (q, k, v)), lengths, pages, scale, causal)
    with on(plan) or contextlib.nullcontext():
        o = torch.empty_strided(q.shape, plan.strides[0], dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        if plan.empty:
            return o.zero_(), lse.fill_(float("-inf"))
        stream = stream_of(plan)
        address: Any = Simulated() if plan.simulated else Tensor.data_ptr
        workspace, _memory = workspace_of(plan, q.device, stream, address)
        cache = Cache(None if lengths is None else address(lengths), None if pages is None else address(pages),
                      0 if pages is None else k.shape[2], 0 if pages is None else k.shape[0])
        tensors = Tensors(*(address(tensor) for tensor in (q, k, v, o, lse)), workspace)
        _library.check(_library.library().flashbook_decode(plan.chapter, plan.step, plan.address, ctypes.addressof(cache),
                                                           ctypes.addressof(tensors), stream))
        if plan.simulated:
            address.bring_back(o, lse)
    return o, lse


def plan_decode(q: Tensor, k: Tensor, v: Tensor, pages: Tensor | None, scale: float, causal: bool) -> Plan:
    if pages is None:
        check_tensors(q, k, v)
    else:
        if pages.dim() != 2 or pages.shape[0] != q.shape[0]:
            raise ValueError(f"block_table is {tuple(pages.shape)}: give ({q.shape[0]}, most pages of a sequence)")
        one_page = [tensor[:1].expand(q.shape[0], *tensor.shape[1:]) if tensor.dim() == 4 and len(tensor) else tensor for tensor in (k, v)]
        check_tensors(q, *one_page)
    plan = planned(Plan(chapter=DECODING, step=EQUAL_WORK, strides=(result_strides(q),), dtype=q.dtype), (q, k, v), q, k, scale, -1,
                   0 if causal else -1, 0.0, False, -1)
    if plan.shape is not None and pages is not None:
        plan.shape.seqlen_k = pages.shape[1] * k.shape[2]
        whole = Shape.from_buffer_copy(plan.shape)  # how much room it takes is asked without pages, so without their strides
        for name in ("k", "v"):
            set_strides(whole, **{name: ((0, 0, 0, 1), (2, 2, 2, 0))})
        plan.workspace = _library.library().flashbook_workspace_bytes(plan.chapter, plan.step, ctypes.addressof(whole))
        if plan.workspace < 0:
            _library.check(_library.BAD_ARGUMENT)
    return plan


class Warm:
    """A forward pass that has been before, with tensors of these sizes and strides: what is left to do for each call, and nothing else.

    `transposed`: the caller's tensors are [batch, seqlen, heads, head_dim]. Only for calls without a mask; see `warm`.
    """

    pack = struct.Struct("=12Q").pack  # FlashbookTensors

    def __init__(self, plan: Plan, q: Tensor, transposed: bool) -> None:
        self.plan, self.device = plan, q.device
        batch, heads, rows, columns = q.shape
        strides = plan.strides[0]
        self.size = (batch, rows, heads, columns) if transposed else (batch, heads, rows, columns)
        self.strides = (strides[0], strides[2], strides[1], 1) if transposed else strides
        self.lse_size = (batch, heads, rows)
        self.call = _library.library().flashbook_attention

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """O, in the caller's order, and the log-sum-exp; None if the call has to go the long way."""
        plan = self.plan
        at_q, at_k, at_v = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if (at_q | at_k | at_v) & 15:
            return None
        stream = 0
        if plan.index >= 0:
            if torch._C._cuda_getDevice() != plan.index:
                return None
            stream = torch._C._cuda_getCurrentRawStream(plan.index)
        o = torch.empty_strided(self.size, self.strides, dtype=plan.dtype, device=self.device)
        lse = torch.empty(self.lse_size, dtype=torch.float32, device=self.device)
        workspace, _memory = workspace_of(plan, self.device, stream, Tensor.data_ptr) if plan.workspace else (0, None)
        tensors = self.pack(96, at_q, at_k, at_v, o.data_ptr(), lse.data_ptr(), workspace, 0, 0, 0, 0, 0)
        if status := self.call(plan.chapter, plan.step, plan.address, tensors, stream):
            _library.check(status)
        return o, lse


def warm(q: Tensor, k: Tensor, v: Tensor, transposed: bool, *options: Any) -> Warm | None:
    """What the call that was just made, `forward(q, k, v, *options)`, leaves to the next one like it; None if it is no plain launch."""
    plan = _plans.get(forward_key(q, k, v, *options))
    return None if plan is None or plan.copies or plan.empty or plan.simulated or plan.mask is not None else Warm(plan, q, transposed)


# ---- what PyTorch knows of them ----------------------------------------------------------------------------------------------------


_OPTIONS = "float scale, int left, int right, float softcap, Tensor? slopes, Tensor? first_query, Tensor? first_key, bool deterministic"
_definitions = torch.library.Library("flashbook", "DEF")
_definitions.define(f"forward(Tensor q, Tensor k, Tensor v, {_OPTIONS}, int chapter, int step) -> (Tensor, Tensor)")
_definitions.define(f"backward(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
_definitions.define("decode(Tensor q, Tensor k, Tensor v, Tensor? lengths, Tensor? pages, float scale, bool causal) -> (Tensor, Tensor)")
for _operator in (forward, backward, decode):
    for _place in ("CPU", "CUDA"):
        _definitions.impl(_operator.__name__, _operator, _place)


@torch.library.register_fake("flashbook::forward")
def _(q: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    o = result(q, torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype)
    return o, torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


@torch.library.register_fake("flashbook::backward")
def _(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return result(q, q.dtype), result(k, k.dtype), result(v, v.dtype)


@torch.library.register_fake("flashbook::decode")
def _(q: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return result(q, q.dtype), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *options, slopes, first_query, first_key, deterministic, _, _ = inputs
    ctx.save_for_backward(q, k, v, *output, slopes, first_query, first_key)
    ctx.options, ctx.deterministic = options, deterministic
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, d_o: Tensor | None, _d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    if d_o is None:
        return (None,) * 13
    q, k, v, o, lse, *arrays = ctx.saved_tensors
    found = torch.ops.flashbook.backward(d_o, q, k, v, o, lse, *ctx.options, *arrays, ctx.deterministic)
    return (*found, *(None,) * 10)


torch.library.register_autograd("flashbook::forward", _gradient, setup_context=_keep, lib=_definitions)
