"""The operators torch.ops.flashbook.forward, backward and decode.

Tensors are views [batch, heads, seqlen, head_dim] with any strides. Everything a call needs except pointers (checks, C structs, the size of the
workspace) is computed once per combination of sizes, strides, types and options, and kept as a `Plan`. Kernels read tensors in place. The
exceptions, which are copied, are rows that are not contiguous, not 16-byte aligned, or overlapping (expanded tensors). Chapters 1 to 4 also copy
any tensor that is not contiguous as [batch, heads, seqlen, head_dim].
"""

import contextlib
import ctypes
import dataclasses
import functools
import struct
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, empty_like, is_grad_enabled
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from flashbook import _library
from flashbook._library import CONSTANTS, STRUCTS, Description, Gradients, Problem, Tensors, feature
from flashbook._torch import (  # imported by name, since each attribute lookup costs time per call
    are_transforms_active,
    current_device,
    graph_task,
    is_batch_of_gradients,
    is_capturing,
    may_have_tangents,
    modes,
    raw_stream,
    saved_tensor_hooks,
    tracing_state,
    without_checks,
)
from flashbook.arguments import shown

TYPES = {torch.float32: _library.F32, torch.float16: _library.F16, torch.bfloat16: _library.BF16, torch.float8_e4m3fn: _library.E4M3}
HEAD_DIMS = (64, 128, 256)  # head dimensions of the kernels' tiles
MAX_HEAD_DIM, HEAD_DIM_MULTIPLE = 256, 8  # head dimensions of tensors, which chapters 5 and 7 to 9 pad to those of tiles
AMPERE, HOPPER, FP8, BACKWARD, DECODING, MASKS = 4, 5, 6, 7, 8, 9  # chapters
ON_CPU = 2, "register_blocks"  # chapter and step
LAST_COMPACT = 4  # the last chapter that reads only contiguous [batch, heads, seqlen, head_dim]
COUNTING = (HOPPER, DECODING, MASKS)  # chapters whose workspace, except for gradients, has counters: 0 before and after each call
# Steps of chapters 9, 7 and 8.
VARLEN, RANGES, FUNCTIONS, GRADIENT, IN_TURNS, PROMPTS = "varlen", "ranges", "mask_functions", "backward", "deterministic", "prompts"
FAST, DETERMINISTIC = "persistent", "deterministic"
EQUAL_WORK, E4M3_CACHE, BOXES, WARPGROUP = "equal_work", "e4m3_cache", "boxes", "warpgroup"
FEW_ROWS, MAX_ROWS = 16, 128  # up to this many rows, EQUAL_WORK and BOXES are chosen; also WARPGROUP's rows per block
MIN_PAGE_ROWS = 8  # size of the smallest page that WARPGROUP and chapter 9 can read
SHORT_PAGE_ROWS = 64  # pages with fewer rows are short
LATENT, LATENT_DIM, LATENT_VALUE_DIM = "latent", 576, 512  # chapter 8's step for keys of 576 columns, whose first 512 are the values
MULTIPROCESSORS = 132  # H100 and H200
# Chapter 9 does not split keys. With fewer tiles than this it leaves so many multiprocessors idle that chapter 8 is as
# fast, although chapter 8 needs 4.8 us per tile and chapter 9 only 1.45 us for twice as many rows.
MIN_TILES, TILE_ROWS = 20, 128
PROMOTED = "promoted_sums"  # the step of chapter 6 that is right for rows of any length
MAX_PLANS = 4096
SCRATCH = 1 << 20  # bytes

SCALE_PER_TENSOR, SCALE_PER_HEAD, SCALE_PER_BLOCK = (CONSTANTS[f"SCALE_OF_{of}"] for of in ("TENSOR", "HEAD", "BLOCK"))
ROWS_PER_SCALE = {"q": 64, "k": 128, "v": 128}  # number of rows per block scale
NO_SECOND = ("the gradient of attention is being differentiated, and second derivatives are not supported: use "
             "torch.nn.functional.scaled_dot_product_attention with SDPBackend.MATH")

Strides = tuple[int, int, int, int]
Scales = tuple[Tensor | None, Tensor | None, Tensor | None]  # names of the inputs
NO_SCALES: Scales = (None, None, None)
# Packing bytes is ten times as fast as filling a ctypes struct.
pack_tensors, TENSORS = struct.Struct("=7Q").pack, ctypes.sizeof(Tensors)
pack_gradients, GRADIENTS = struct.Struct("=7Q").pack, ctypes.sizeof(Gradients)


@dataclasses.dataclass
class Plan:
    """A plan: everything about a call except its pointers."""

    copies: bool = False  # set if a tensor has to be copied first: then the call has another plan
    compact: bool = False  # whether copies are contiguous [batch, heads, seqlen, head_dim]
    empty: bool = False  # whether there is nothing to launch
    chapter: int = 0
    step: str | int = 0
    reason: str = ""  # reason for the step, for a cache
    masked: bool = False  # whether it needs chapter 9, or chapter 8's rules
    sizes: Any = None  # FlashbookProblem
    features: dict[str, Any] = dataclasses.field(default_factory=dict)  # their structs, by name
    varying: list[str] = dataclasses.field(default_factory=list)  # fields that each call sets
    problem: Description | None = None  # all of these
    call: Any = None  # the C function that launches
    first: tuple[Any, ...] = ()  # its first arguments: chapter, step, and the address of the problem
    workspace: int = 0  # bytes
    memory: Tensor | None = None  # template of the workspace, without storage
    results: tuple[Tensor, ...] = ()  # templates of the results, without storage
    index: int = -1  # number of the device; -1 means the CPU
    simulated: bool = False

    @property
    def counts(self) -> bool:
        """Whether the workspace has counters (see COUNTING)."""
        return self.chapter in COUNTING and not (self.chapter == MASKS and self.step in (GRADIENT, IN_TURNS))

    def with_arrays(self, one: Tensor | None, two: Tensor | None) -> tuple[Any, ...]:
        """Returns the C function's first arguments for a call whose only varying fields are these arrays."""
        chapter, step, _ = self.first
        if one is None or two is None:
            return chapter, step, self.problem.with_values((two if one is None else one).data_ptr())  # type: ignore[union-attr]
        return chapter, step, self.problem.with_values(one.data_ptr(), two.data_ptr())  # type: ignore[union-attr]


_plans: dict[object, Plan] = {}
# Memory that later calls reuse, by device, stream and thread, since the kernels of two threads' calls may alternate.
_kept: dict[tuple[int, int, int, int], Tensor] = {}  # workspaces with counters, also by chapter
_scratch: dict[tuple[int, int, int], Tensor] = {}


# ---- checks ------------------------------------------------------------------------------------------------------------------------


def is_e4m3_cache(q: Tensor, k: Tensor) -> bool:
    """Returns whether the keys are e4m3 and the queries have 16 bits."""
    return k.dtype == torch.float8_e4m3fn and q.dtype in (torch.float16, torch.bfloat16)


def check_tensors(q: Tensor, k: Tensor, v: Tensor, cache: bool = False, any_value_dim: bool = False) -> None:
    """Raises ValueError or TypeError unless these can be queries, keys and values, [batch, heads, seqlen, head_dim].
    The keys and values of a cache may be e4m3. `any_value_dim`: v may have another number of columns than q and k."""
    key_dtype = k.dtype if cache and is_e4m3_cache(q, k) else q.dtype
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions: pass [batch, heads, seqlen, head_dim]")
        if tensor.dtype != (q.dtype if name == "q" else key_dtype) or tensor.device != q.device:
            raise ValueError(f"q is {q.dtype} on {q.device} and {name} is {tensor.dtype} on {tensor.device}: pass the same type, on the same device")
        if any(size > _library.MAX_SIZE for size in tensor.shape):
            raise ValueError(f"{name} is {tuple(tensor.shape)}: pass dimensions below 2^31")
    if q.dtype not in TYPES:
        raise TypeError(f"q is {q.dtype}: pass float16 or bfloat16; chapters 1 and 2 also support float32, and chapter 6 float8_e4m3fn")
    latent = cache and k.shape[3] == LATENT_DIM and v.shape[3] == LATENT_VALUE_DIM
    if k.shape != (v.shape[:3] + k.shape[3:] if any_value_dim or latent else v.shape):
        raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}: pass one shape{', except for the columns' if any_value_dim else ''}")
    if v.shape[3] != k.shape[3] and not latent and (q.dtype not in (torch.float16, torch.bfloat16) or v.shape[3] % HEAD_DIM_MULTIPLE
                                     or not 0 < v.shape[3] <= MAX_HEAD_DIM):
        raise ValueError(f"v is {tuple(v.shape)}, {v.dtype}: pass as many columns as k has, or in float16 and bfloat16 a multiple of "
                         f"{HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}")
    if not latent and (q.shape[3] % HEAD_DIM_MULTIPLE or not 0 < q.shape[3] <= MAX_HEAD_DIM):
        raise ValueError(f"head_dim is {q.shape[3]}: pass a multiple of {HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}, or pad q, k and v with zero "
                         "columns and pass softmax_scale")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(f"q is {tuple(q.shape)} and k is {tuple(k.shape)}: pass the same batch and head_dim")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise ValueError(f"there are {q.shape[1]} query heads and {k.shape[1]} key heads: pass key heads whose number divides that of query heads")


def missing_columns(*tensors: Tensor) -> int:
    """Returns the number of zero columns that callers must append to make head_dim a multiple of 8 (only for 16-bit and
    32-bit tensors)."""
    (columns, *others), types = {tensor.shape[-1] for tensor in tensors}, {tensor.dtype for tensor in tensors}
    return 0 if others or columns > MAX_HEAD_DIM or torch.float8_e4m3fn in types else -columns % HEAD_DIM_MULTIPLE


def as_padded(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Templates of the padded tensors, without storage; the tensors themselves if no columns are missing."""
    missing = missing_columns(*tensors)
    if not missing:
        return tensors

    def wider(tensor: Tensor) -> Tensor:
        batch, heads, rows, columns = tensor.shape
        if tensor.stride(1) < tensor.stride(2):
            return without_memory(tensor.new_empty(batch, rows, heads, columns + missing).transpose(1, 2))
        return without_memory(tensor.new_empty(batch, heads, rows, columns + missing))

    return tuple(map(wider, tensors))


def is_padded(q: Tensor) -> bool:
    """Returns whether the kernels' tiles have more columns than the tensors."""
    return q.shape[3] not in HEAD_DIMS


def check_array(name: str, tensor: Tensor, like: Tensor, dtype: torch.dtype) -> None:
    """Raises TypeError or ValueError unless this is a contiguous array of `dtype` on the device of `like`."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is {shown(tensor)}: pass a tensor, {dtype} on {like.device}")
    if tensor.dtype != dtype or tensor.device != like.device or not tensor.is_contiguous():
        raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}{'' if tensor.is_contiguous() else ', with gaps'}: "
                         f"give {dtype} on {like.device}, without gaps")


@functools.cache
def is_hopper(device: torch.device) -> bool:
    """Returns whether kernels for sm_90a run on the device. The simulator counts as Hopper."""
    return bool(device.type == "cpu" or torch.cuda.get_device_capability(device) == (9, 0))


def has_gradient_of_values(head_dim: int, value_dim: int) -> bool:
    """Returns whether values of another width than keys have a gradient: chapter 9's tiles of 192 and 128 columns."""
    return 128 < head_dim <= 192 and value_dim <= 128 and head_dim % HEAD_DIM_MULTIPLE == value_dim % HEAD_DIM_MULTIPLE == 0


def check_gradient(q: Tensor, value_dim: int, masked: bool) -> None:
    """Raises the gradient's errors during the forward pass, before a loss has been computed."""
    masked = masked or value_dim != q.shape[-1]
    if value_dim != q.shape[-1] and not has_gradient_of_values(q.shape[-1], value_dim):
        raise NotImplementedError(f"v has {value_dim} columns and q has {q.shape[-1]}, and there is no gradient for that: pad the narrower ones with "
                                  "zero columns and pass softmax_scale, or call under torch.no_grad()")
    if q.dtype == torch.float8_e4m3fn:  # the backward pass raises instead, as in FlashAttention-3
        return
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"q is {q.dtype} and requires a gradient: pass float16 or bfloat16, call under torch.no_grad(), or use "
                        "torch.nn.functional.scaled_dot_product_attention")
    check_machine(q.device, MASKS if masked else BACKWARD)


def no_gradient_in_e4m3() -> TypeError:
    return TypeError("q is torch.float8_e4m3fn, which has no gradient: pass float16 or bfloat16, or call under torch.no_grad()")


def check_other_gradients(**tensors: object) -> None:
    """Raises if an array that has no gradient requires one: autograd would treat its gradient as 0."""
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                raise NotImplementedError(f"{name} requires a gradient, which is not supported: pass {name}.detach(), or call under torch.no_grad()")


def check_tangents(*tensors: Tensor) -> None:
    """Raises if forward-mode derivatives are requested."""
    if may_have_tangents() and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise NotImplementedError("forward-mode derivatives are not supported: use torch.nn.functional.scaled_dot_product_attention with "
                                  "SDPBackend.MATH")


def is_deterministic(asked: bool) -> bool:
    """Returns whether a gradient must be bitwise reproducible, by the caller's choice or by
    torch.use_deterministic_algorithms(True)."""
    return asked or torch.are_deterministic_algorithms_enabled()


def check_machine(device: torch.device, chapter: int) -> None:
    """Raises if the chapter's kernels cannot run on tensors on this device."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {device}: move q, k and v to a CUDA device, or to the CPU")
    has_kernels = _library.chapters()[chapter][1]
    if device.type == "cpu" and has_kernels and not _library.is_simulated():
        raise RuntimeError(f"q is on the CPU, and chapter {chapter} runs on a GPU: move q, k and v to a CUDA device, install the package with "
                           "-C cmake.define.FLASHBOOK_MACHINE=sim to use the simulator, or use chapter 2 for full and causal attention without "
                           "gradients")
    if device.type == "cuda" and not has_kernels:
        raise ValueError(f"q is on {device}, and chapter {chapter} runs on the CPU: move q, k and v to the CPU, or choose another chapter")
    if device.type == "cuda" and chapter >= HOPPER and not is_hopper(device):
        raise NotImplementedError(f"chapter {chapter} needs Hopper, and {device} has compute capability "
                                  f"{'.'.join(map(str, torch.cuda.get_device_capability(device)))}: use a GPU of 9.0, or chapter 4 for full and "
                                  "causal attention without gradients")
    if device.type == "cuda" and _library.is_simulated():
        raise RuntimeError(f"q is on {device}, and the library was built without nvcc: install the package again with nvcc on PATH, or move q, k "
                           "and v to the CPU, where the simulator runs the kernels")


def scaling_of(q: Tensor, k: Tensor, scales: Scales) -> int:
    """Returns which elements share a scale. Raises TypeError or ValueError unless these can be scales of q, k and v."""
    dims = {scale.dim() for scale in scales if isinstance(scale, Tensor)}
    scaling = {1: SCALE_PER_TENSOR, 2: SCALE_PER_HEAD, 3: SCALE_PER_BLOCK}.get(dims.pop() if len(dims) == 1 else 0)
    for name, scale, tensor in zip("qkv", scales, (q, k, k)):
        if scale is None:
            continue
        check_array(f"{name}_scale", scale, q, torch.float32)
        blocks = -(-tensor.shape[2] // ROWS_PER_SCALE[name])
        sizes = {SCALE_PER_TENSOR: (1,), SCALE_PER_HEAD: (q.shape[0], k.shape[1]), SCALE_PER_BLOCK: (*tensor.shape[:2], blocks)}
        if scaling is None or tuple(scale.shape) != sizes[scaling]:
            every = ", ".join(map(str, sizes.values()))
            raise ValueError(f"{name}_scale is {tuple(scale.shape)}: pass one per tensor, head or block, alike for q, k and v: for {name} {every}")
    return scaling or 0


# ---- memory layout -----------------------------------------------------------------------------------------------------------------


def result_strides(like: Tensor, columns: int) -> Strides:
    """Returns the strides of a contiguous tensor [batch, seqlen, heads, columns] if `like` stores a token's heads
    together, else of [batch, heads, seqlen, columns]."""
    _, heads, rows, _ = like.shape
    if like.stride(1) < like.stride(2):
        return heads * rows * columns, columns, heads * columns, 1
    return heads * rows * columns, rows * columns, columns, 1


def result(like: Tensor, dtype: torch.dtype, columns: int | None = None) -> Tensor:
    columns = like.shape[3] if columns is None else columns
    return torch.empty_strided((*like.shape[:3], columns), result_strides(like, columns), dtype=dtype, device=like.device)


def without_memory(tensor: Tensor) -> Tensor:
    """Returns the tensor without storage, as a template: torch.empty_like of a template takes half as long as
    torch.empty_strided."""
    tensor.untyped_storage().resize_(0)
    return tensor


def with_heads_and_rows_exchanged(like: Tensor) -> Tensor:
    """Returns a template with heads and rows exchanged. A view is not possible, since there is no storage."""
    (batch, heads, rows, columns), strides = like.shape, like.stride()
    sizes = batch, rows, heads, columns
    return without_memory(torch.empty_strided(sizes, (strides[0], strides[2], strides[1], strides[3]), dtype=like.dtype, device=like.device))


def lse_without_memory(q: Tensor) -> Tensor:
    return without_memory(torch.empty(q.shape[:3], dtype=torch.float32, device=q.device))


def is_readable(tensor: Tensor, compact: bool) -> bool:
    """Returns whether kernels can read the tensor in place, provided that it begins at a multiple of 16 bytes."""
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
    """Returns the tensor, or a copy of it that kernels can read."""
    if is_readable(tensor, compact) and tensor.data_ptr() % 16 == 0:
        return tensor
    if compact:
        return tensor.clone(memory_format=torch.contiguous_format)
    return result(tensor, tensor.dtype).copy_(tensor)


def as_copied(tensors: tuple[Tensor, ...], compact: bool) -> tuple[Tensor, ...]:
    """Returns the tensors as `readable` returns them; those that it would copy are templates without storage."""
    def copied(tensor: Tensor) -> Tensor:
        if is_readable(tensor, compact):
            return tensor
        return without_memory(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) if compact else result(tensor, tensor.dtype))

    return tuple(map(copied, tensors))


def set_strides(layout: Any, **tensors: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Fills in each tensor's strides, given with its sizes. Along an axis of size 1 PyTorch's stride is arbitrary, so a
    valid one is substituted."""
    for name, (strides, sizes) in tensors.items():
        batch, head, row = (stride if count > 1 else sizes[3] for stride, count in zip(strides[:3], sizes))
        setattr(layout, name, STRUCTS["Strides"](batch=batch, head=head, row=row))


# ---- plans -------------------------------------------------------------------------------------------------------------------------


def plan_of(key: object, make: Callable[[], Plan]) -> Plan:
    plan = make()
    if len(_plans) >= MAX_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan


def is_masked(left: int, right: int, softcap: float, slopes: bool, documents: int, dropout: float = 0.0, reach: int = -1) -> bool:
    """Returns whether the call needs chapter 9. `reach` is that of the bias; -1 means no bias."""
    return left >= 0 or right > 0 or softcap > 0 or slopes or documents >= 0 or dropout > 0 or reach >= 0


def chosen(q: Tensor, value_dim: int, left: int, right: int, softcap: float, slopes: bool, documents: int, chapter: int,
           step: int, dropout: float, reach: int) -> tuple[int, str | int]:
    """Returns the chapter and step of a forward pass."""
    if chapter:
        known = _library.chapters()
        if chapter not in known:
            raise ValueError(f"chapter={chapter} is not supported: pass one of {', '.join(map(str, known))}")
        last = {MASKS: FUNCTIONS, DECODING: EQUAL_WORK}.get(chapter, known[chapter][0])
        return chapter, step or last
    masked = is_masked(left, right, softcap, slopes, documents, dropout, reach)
    functions = softcap > 0 or slopes or dropout > 0 or reach >= 0
    if value_dim != q.shape[-1]:
        if functions:
            raise NotImplementedError(f"v has {value_dim} columns and q has {q.shape[3]}, which softcap, alibi_slopes, dropout_p and bias do not "
                                      "support: leave them out, or pad the narrower ones with zero columns and pass softmax_scale")
        return MASKS, VARLEN if documents >= 0 else RANGES
    return choose(q.device.type == "cpu", is_hopper(q.device), q.dtype, q.shape[2], masked, functions, documents >= 0, is_padded(q))[:2]


def choose(on_cpu: bool, hopper: bool, dtype: torch.dtype, queries: int, masked: bool, functions: bool, packed: bool,
           padded: bool) -> tuple[int, str, str]:
    """Returns the chapter and step of a forward pass that does not choose them, and the reason."""
    if functions:
        return MASKS, FUNCTIONS, "a softcap, slopes, a bias or dropout"
    if masked:
        return (MASKS, VARLEN, "packed sequences") if packed else (MASKS, RANGES, "a window")
    if dtype == torch.float8_e4m3fn:
        return FP8, PROMOTED, "e4m3, right for rows of any length"
    if padded:  # `check_machine` refuses other GPUs, and CPU tensors without the simulator
        return HOPPER, "persistent", "a head dimension that is padded"
    if on_cpu:
        return *ON_CPU, "CPU tensors"
    if not hopper:
        return AMPERE, "late_maximum", "a GPU before Hopper"
    if queries == 1:
        return DECODING, EQUAL_WORK, "one query: the keys are split across all blocks"
    return HOPPER, "persistent", "a Hopper GPU, full or causal attention"


def planned(plan: Plan, tensors: tuple[Tensor, ...], scale: float, left: int, right: int, softcap: float, slopes: int, documents: int,
            scaling: int = -1, dropout: float = 0.0, reach: int = -1) -> Plan:
    """Adds sizes and features to a plan that has a chapter and a step. `tensors` are q, k and v, and O and dO for a gradient. `slopes`
    is the number of their dimensions. -1 means no documents, scales or bias."""
    q, k, v, *others = tensors
    check_machine(q.device, plan.chapter)
    if not scale > 0 or scale == float("inf"):
        raise ValueError(f"softmax_scale is {scale}: pass a finite number above 0")
    plan.compact = plan.chapter <= LAST_COMPACT
    plan.copies = not all(is_readable(tensor, plan.compact) for tensor in tensors)
    plan.empty = q.numel() == 0 or k.numel() == 0 or documents == 0
    plan.index = -1 if q.device.type == "cpu" else q.device.index
    plan.simulated = plan.index < 0 and _library.chapters()[plan.chapter][1]
    plan.masked = is_masked(left, right, softcap, slopes > 0, documents, dropout, reach)
    if plan.copies or plan.empty:
        return plan
    value_dim = v.shape[3]
    plan.sizes = Problem(batch=q.shape[0], heads=q.shape[1], kv_heads=k.shape[1], seqlen_q=q.shape[2], seqlen_k=k.shape[2], head_dim=q.shape[3],
                         value_dim=value_dim if value_dim != q.shape[3] else 0, dtype=TYPES[q.dtype], scale=scale)
    if not plan.compact:
        strides = {name: (tensor.stride(), tensor.shape) for name, tensor in zip(("q", "k", "v", "o", "d_o"), tensors)}
        if others:
            strides |= {f"d{name}": (result_strides(tensor, tensor.shape[3]), tensor.shape) for name, tensor in zip("qkv", tensors)}
        else:
            strides["o"] = result_strides(q, value_dim), (*q.shape[:3], value_dim)
        if k.shape[3] == LATENT_DIM:
            del strides["v"]
        set_strides(add(plan, "Layout"), **strides)
    if left >= 0 or right >= 0:
        add(plan, "Window", left=left, right=right)
    if softcap > 0:
        add(plan, "Softcap", softcap=softcap)
    if slopes:
        add(plan, "Alibi", "slopes", sequences=0 if slopes == 1 else documents if documents >= 0 else q.shape[0])
    if documents > 0:
        add(plan, "Documents", "first_query", "first_key", documents=documents)
    if dropout > 0:
        add(plan, "Dropout", "seed", dropout=dropout)
    if reach >= 0:
        add(plan, "Bias", "bias", reach=reach)
    if scaling >= 0:
        add(plan, "Scales", "q_scale", "k_scale", "v_scale", scaling=scaling)
    return plan


def add(plan: Plan, name: str, *varying: str, **values: float) -> Any:
    """Adds a feature to the plan, with fields that each call sets, and returns its struct."""
    plan.varying += varying
    plan.features[name] = feature(name, **values)
    return plan.features[name]


def described(plan: Plan, function: str, device: torch.device) -> Plan:
    """Completes a plan that has its sizes and features. Raises the library's error if the step cannot run the problem."""
    if plan.sizes is None:
        return plan
    c = _library.library()
    plan.problem = Description(plan.sizes, *plan.features.values(), varying=plan.varying)
    plan.first = plan.chapter, _library.step(plan.chapter, plan.step), plan.problem.address
    plan.call = getattr(c, f"flashbook_{function}")
    plan.workspace = c.flashbook_workspace_bytes(*plan.first)
    if plan.workspace < 0:
        _library.check(_library.BAD_ARGUMENT)
    plan.memory = without_memory(torch.empty(plan.workspace, dtype=torch.uint8, device=device))
    return plan


class Launch:
    """A launch of a plan: the stream, the workspace, and the addresses of tensors. For the simulator, tensors are copied to
    memory that kernels may access."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.stream = plan, int(raw_stream(plan.index)) if plan.index >= 0 else 0
        self.copies: dict[int, tuple[int, int]] = {}  # keyed by the original's address: the copy's address and its size in bytes
        self.workspace, self.memory = workspace_of(plan, self.stream, self.address)

    def address(self, tensor: Tensor | None) -> int:
        """Returns the address that kernels get: 0 for None."""
        if tensor is None:
            return 0
        place: int = tensor.data_ptr()
        if not self.plan.simulated:
            return place
        size = tensor.element_size() * (1 + sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride())))
        if place in self.copies and self.copies[place][1] >= size:  # since q and k may be the same tensor
            return self.copies[place][0]
        address = _library.library().flashbook_allocate(size)
        if not address:
            _library.check(_library.DEVICE_ERROR)
        ctypes.memmove(address, place, size)
        self.copies[place] = int(address), size
        return int(address)

    def problem(self, seed: Tensor | None, arrays: dict[str, Tensor | None]) -> tuple[Any, ...]:
        """Returns the C function's first arguments, with arrays and the seed in its problem."""
        if not self.plan.varying:
            return self.plan.first
        described: Any = self.plan.problem
        values = [int(seed or 0) % 2**64 if name == "seed" else self.address(arrays[name]) for name in described.varying]
        return (*self.plan.first[:2], described.with_values(*values))

    def tensors(self, *inputs: Tensor) -> bytes:
        """Returns FlashbookTensors of q, k, v, O and the log-sum-exp."""
        return pack_tensors(TENSORS, *map(self.address, inputs), self.workspace)

    def run(self, *arguments: Any, results: tuple[Tensor | None, ...]) -> None:
        if status := self.plan.call(*arguments, self.stream):
            _library.check(status)
        for tensor in results:
            if tensor is not None and self.plan.simulated:
                ctypes.memmove(tensor.data_ptr(), *self.copies[tensor.data_ptr()])

    def __del__(self) -> None:
        for address, _ in getattr(self, "copies", {}).values():  # compiled autograd also makes objects without __init__
            _library.library().flashbook_free(address)


def workspace_of(plan: Plan, stream: int, address: Callable[[Tensor], int]) -> tuple[int, Tensor | None]:
    """Returns the workspace's address, and the tensor that keeps it alive until the launch. A workspace with counters
    is reused by this thread's later calls on the stream; a CUDA graph gets its own."""
    if plan.workspace == 0 or plan.memory is None:
        return 0, None
    if not plan.counts:
        memory = empty_like(plan.memory)
    elif plan.index < 0 or is_capturing():
        memory = torch.zeros_like(plan.memory)
    else:
        place = (plan.index, stream, get_ident(), plan.chapter)
        kept = _kept.get(place)
        if kept is None or kept.numel() < plan.workspace:
            kept = _kept[place] = torch.zeros_like(plan.memory)
        memory = kept
    return address(memory), memory


def scratch_of(plan: Plan, stream: int) -> Tensor:
    """Returns memory without counters that this thread's later calls on the stream reuse: for log-sum-exps that the
    caller does not want, and for small workspaces of gradients."""
    place = (plan.index, stream, get_ident())
    found = _scratch.get(place)
    if found is None:
        found = _scratch[place] = torch.empty(SCRATCH, dtype=torch.uint8, device=plan.results[0].device)
    return found


def is_elsewhere(plan: Plan) -> bool:
    """Returns whether the current device is not that of the plan."""
    return plan.index >= 0 and current_device() != plan.index


def on(plan: Plan) -> Any:
    """Makes the plan's device the current one."""
    return torch.cuda.device(plan.index) if is_elsewhere(plan) else contextlib.nullcontext()


def check_arrays(q: Tensor, slopes: Tensor | None, first_query: Tensor | None, first_key: Tensor | None) -> None:
    if slopes is not None:
        check_array("alibi_slopes", slopes, q, torch.float32)
        sequences = q.shape[0] if first_query is None else first_query.shape[0] - 1
        if tuple(slopes.shape) not in ((q.shape[1],), (sequences, q.shape[1])):
            raise ValueError(f"alibi_slopes is {tuple(slopes.shape)}: pass ({q.shape[1]},), one per head, or {(sequences, q.shape[1])}, one per "
                             "head and sequence")
    for name, array in (("cu_seqlens_q", first_query), ("cu_seqlens_k", first_key)):
        if array is not None:
            check_array(name, array, q, torch.int32)
    if first_query is not None and first_key is not None and (first_query.dim() != 1 or first_query.shape != first_key.shape or len(first_query) < 1):
        raise ValueError(f"cu_seqlens_q is {tuple(first_query.shape)} and cu_seqlens_k is {tuple(first_key.shape)}: pass (sequences + 1,) for both")


def dims_of(slopes: Tensor | None) -> int:
    """Returns the number of the slopes' dimensions; 0 if there are none."""
    return 0 if slopes is None else slopes.dim()


def reach_of(bias: Tensor | None) -> int:
    """Returns the reach of the bias; -1 if there is no bias."""
    return -1 if bias is None else bias.shape[-1] // 2


def check_bias(q: Tensor, bias: Tensor) -> None:
    check_array("bias", bias, q, torch.float32)
    if bias.dim() != 2 or bias.shape[0] != q.shape[1] or bias.shape[1] % 2 == 0:
        raise ValueError(f"bias is {tuple(bias.shape)}: pass ({q.shape[1]}, 2 * reach + 1), one per head and distance")


def check_bias_gradient(bias: Tensor | None, deterministic: bool) -> None:
    """Raises if the gradient of a bias would have to be deterministic."""
    if deterministic and bias is not None and bias.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("bias requires a gradient, which is summed in arbitrary order, and gradients must be deterministic: pass "
                                  "bias.detach(), or do not call torch.use_deterministic_algorithms(True)")


def check_seed(plan: Plan, dropout: float, seed: Tensor | None) -> None:
    """Raises if a forward pass has no seed for its dropout, or if a CUDA graph would freeze the seed."""
    if dropout == 0 or plan.empty:
        return
    if seed is None or seed.dtype != torch.int64 or seed.numel() != 1 or seed.device.type != "cpu":
        raise ValueError(f"dropout is {dropout}, and seed is not one int64 on the CPU: pass torch.randint(2**63 - 1, (1,))")
    if plan.index >= 0 and is_capturing():
        raise NotImplementedError(f"dropout_p is {dropout} in a CUDA graph, which would drop the same elements in every replay: capture "
                                  "without dropout")


# ---- the calls ---------------------------------------------------------------------------------------------------------------------


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
            first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, chapter: int, step: int, q_scale: Tensor | None = None,
            k_scale: Tensor | None = None, v_scale: Tensor | None = None, dropout: float = 0.0, seed: Tensor | None = None,
            bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns O and the log-sum-exp, [batch, heads, seqlen_q]. `seed`, one int64 on the CPU, determines which elements
    dropout drops. `bias` is indexed by distance, [heads, 2 * reach + 1]."""
    scales = q_scale, k_scale, v_scale
    check_tangents(q, k, v)
    if bias is not None:
        check_bias(q, bias)
    plan = forward_plan(q, k, v, scale, left, right, softcap, slopes, first_query, chapter, step, scales, dropout, reach_of(bias))
    if plan.masked:
        check_arrays(q, slopes, first_query, first_key)
    check_seed(plan, dropout, seed)
    if plan.copies or (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15:
        return forward(*(readable(tensor, plan.compact) for tensor in (q, k, v)), scale, left, right, softcap, slopes, first_query, first_key,
                       deterministic, chapter, step, *scales, dropout, seed, bias)
    with on(plan):
        return launch_forward(plan, q, k, v, seed, slopes=slopes, first_query=first_query, first_key=first_key, bias=bias, q_scale=q_scale,
                              k_scale=k_scale, v_scale=v_scale)


def forward_plan(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
                 first_query: Tensor | None, chapter: int, step: int, scales: Scales, dropout: float = 0.0, reach: int = -1) -> Plan:
    documents = -1 if first_query is None else first_query.shape[0] - 1
    if scales != NO_SCALES and q.dtype != torch.float8_e4m3fn:
        raise ValueError(f"scales are given, and q is {q.dtype}: pass float8_e4m3fn, or leave q_scale, k_scale and v_scale out")
    scaling = -1 if scales == NO_SCALES else scaling_of(q, k, scales)
    options = scale, left, right, softcap, dims_of(slopes), documents, chapter, step, scaling, dropout, reach
    key = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, *options)
    plan = _plans.get(key)
    if plan is None:
        plan = plan_of(key, lambda: plan_forward((q, k, v), *options))
    return plan


def plan_forward(inputs: tuple[Tensor, ...], scale: float, left: int, right: int, softcap: float, slopes: int, documents: int, chapter: int,
                 step: int, scaling: int, dropout: float, reach: int) -> Plan:
    q, k, v = inputs
    check_tensors(q, k, v, any_value_dim=True)
    plan = Plan()
    plan.chapter, plan.step = chosen(q, v.shape[3], left, right, softcap, slopes > 0, documents, chapter, step, dropout, reach)
    if plan.chapter == DECODING and not chapter:
        _, plan.step, _ = chosen_decode(q, k, v, None, True, 0, False)
    plan = described(planned(plan, inputs, scale, left, right, softcap, slopes, documents, scaling, dropout, reach), "attention", q.device)
    plan.results = without_memory(result(q, torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype, v.shape[3])), lse_without_memory(q)
    return plan


def launch_forward(plan: Plan, q: Tensor, k: Tensor, v: Tensor, seed: Tensor | None = None, **arrays: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns O and the log-sum-exp. The arrays are named as their fields."""
    (o, lse), sinks = map(empty_like, plan.results), arrays.get("sink_logits")
    if plan.empty:
        return o.zero_(), lse.fill_(float("-inf")) if sinks is None else lse.copy_(sinks[:, None])
    if "PackedQueries" in plan.features and plan.chapter == DECODING:  # chapter 8 does not write the rows after the last sequence; chapter 9 does
        o.zero_(), lse.fill_(float("-inf"))
    launch = Launch(plan)
    launch.run(*launch.problem(seed, arrays), launch.tensors(q, k, v, o, lse), results=(o, lse))
    return o, lse


def backward(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, scale: float, left: int, right: int, softcap: float,
             slopes: Tensor | None, first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, dropout: float = 0.0,
             seed: Tensor | None = None, bias: Tensor | None = None, d_lse: Tensor | None = None,
             d_bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k and v, for the forward pass's dropout, seed and bias. The gradient of the bias is
    written to d_bias, if given. d_lse, float32, is the gradient with respect to the log-sum-exp, if the loss uses it."""
    if torch.is_grad_enabled() and graph_task() >= 0:
        raise NotImplementedError("create_graph is True in a compiled call, for which PyTorch would treat second derivatives as 0: leave "
                                  "create_graph out, or do not compile the call")
    if q.dtype == torch.float8_e4m3fn:
        raise no_gradient_in_e4m3()
    documents = -1 if first_query is None else first_query.shape[0] - 1
    inputs = (q, k, v, o, d_o)
    options = scale, left, right, softcap, dims_of(slopes), documents, deterministic, dropout, reach_of(bias)
    key = backward_key(inputs, *options)
    plan = _plans.get(key)
    if plan is None:
        plan = plan_of(key, lambda: plan_backward(inputs, *options))
    if plan.copies or any(tensor.data_ptr() & 15 for tensor in inputs):
        return backward(*(readable(tensor, False) for tensor in (d_o, q, k, v, o)), lse, scale, left, right, softcap, slopes, first_query,
                        first_key, deterministic, dropout, seed, bias, d_lse, d_bias)
    with on(plan):
        arrays = {"slopes": slopes, "first_query": first_query, "first_key": first_key, "bias": bias}
        return launch_backward(plan, d_o, q, k, v, o, lse, seed, d_lse, d_bias, **arrays)


def backward_with_bias(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, bias: Tensor, scale: float, left: int, right: int,
                       softcap: float, slopes: Tensor | None, first_query: Tensor | None, first_key: Tensor | None, deterministic: bool,
                       dropout: float = 0.0, seed: Tensor | None = None,
                       d_lse: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k, v and the bias."""
    d_bias = torch.empty_like(bias)
    return (*backward(d_o, q, k, v, o, lse, scale, left, right, softcap, slopes, first_query, first_key, deterministic, dropout, seed, bias, d_lse,
                      d_bias), d_bias)


def backward_key(inputs: tuple[Tensor, ...], *options: object) -> object:
    return ("backward", *((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in inputs), *options)


def plan_backward(inputs: tuple[Tensor, ...], scale: float, left: int, right: int, softcap: float, slopes: int, documents: int,
                  deterministic: bool, dropout: float = 0.0, reach: int = -1) -> Plan:
    q, k, v, *_ = inputs
    check_tensors(q, k, v, any_value_dim=True)
    masked = v.shape[3] != q.shape[3] or is_masked(left, right, softcap, slopes > 0, documents, dropout, reach)
    check_gradient(q, v.shape[3], masked)
    steps = (IN_TURNS, GRADIENT) if masked else (DETERMINISTIC, FAST)
    plan = Plan(chapter=MASKS if masked else BACKWARD, step=steps[not deterministic])
    plan = described(planned(plan, inputs, scale, left, right, softcap, slopes, documents, dropout=dropout, reach=reach), "backward", q.device)
    plan.results = tuple(without_memory(result(tensor, q.dtype)) for tensor in (q, k, v))
    return plan


def launch_backward(plan: Plan, d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, seed: Tensor | None, d_lse: Tensor | None,
                    d_bias: Tensor | None, **arrays: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (empty_like(like) for like in plan.results)
    if plan.empty:
        if d_bias is not None:
            d_bias.zero_()
        return dq.zero_(), dk.zero_(), dv.zero_()
    launch = Launch(plan)
    tensors = launch.tensors(q, k, v, o, lse := lse.contiguous())  # a saved-tensor hook may have changed its strides
    d_lse = None if d_lse is None else d_lse.contiguous()  # kept alive until the launch
    gradients = pack_gradients(GRADIENTS, *map(launch.address, (d_o, dq, dk, dv, d_bias, d_lse)))
    launch.run(*launch.problem(seed, arrays), tensors, gradients, results=(dq, dk, dv, d_bias))
    return dq, dk, dv


def decode(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, pages: Tensor | None, scale: float, left: int = -1, right: int = -1,
           softcap: float = 0.0, slopes: Tensor | None = None, sinks: Tensor | None = None, paddings: Tensor | None = None,
           first_query: Tensor | None = None, max_queries: int = 0, k_scale: Tensor | None = None,
           v_scale: Tensor | None = None, unsplit: bool = False) -> tuple[Tensor, Tensor]:
    """Computes attention against a cache. k and v are [batch, heads, seqlen, head_dim], or [pages, heads, rows,
    head_dim]; lengths is [batch], pages is [batch, max pages per sequence]; slopes are [heads] or [batch, heads], sinks
    [heads]; paddings, [batch], are the rows before a sequence's first key. With first_query, [batch + 1], and pages, q
    is [1, heads, all queries, head_dim], and each sequence has at most max_queries. k_scale and v_scale, for e4m3, are
    [batch, heads]. With `unsplit`, a sequence's result is bitwise the same alone and in any batch."""
    rules = left, right, softcap, slopes, sinks, paddings, first_query, max_queries, k_scale, v_scale, unsplit
    check_tangents(q, k, v)
    plan = decode_plan(q, k, v, lengths, pages, scale, *rules)
    if plan.copies or (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15:
        return decode(*(readable(tensor, False) for tensor in (q, k, v)), lengths, pages, scale, *rules)
    with on(plan):
        return launch_forward(plan, q, k, v, lengths=lengths, page_table=pages, slopes=slopes, sink_logits=sinks, paddings=paddings,
                              first_query=first_query, k_scale=k_scale, v_scale=v_scale)


def decode_plan(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, pages: Tensor | None, scale: float, left: int = -1, right: int = -1,
                softcap: float = 0.0, slopes: Tensor | None = None, sinks: Tensor | None = None, paddings: Tensor | None = None,
                first_query: Tensor | None = None, max_queries: int = 0, k_scale: Tensor | None = None, v_scale: Tensor | None = None,
                unsplit: bool = False) -> Plan:
    per_sequence = q.shape[:1] if first_query is None or first_query.dim() != 1 else (len(first_query) - 1,)
    for name, array, size in (("cache_seqlens", lengths, per_sequence), ("block_table", pages, None), ("cache_leftpad", paddings, per_sequence),
                              ("cu_seqlens_q", first_query, (per_sequence[0] + 1,))):
        if array is not None:
            check_array(name, array, q, torch.int32)
            if size is not None and array.shape != size:
                raise ValueError(f"{name} is {tuple(array.shape)}: pass {tuple(size)}")
    check_arrays(q, slopes, first_query, None)
    if sinks is not None:
        check_array("s_aux", sinks, q, torch.float32)
        if sinks.shape != (q.shape[1],):
            raise ValueError(f"s_aux is {tuple(sinks.shape)}: pass ({q.shape[1]},), one per head")
    if first_query is not None and (pages is None or q.shape[0] != 1 or max_queries < 1):
        raise ValueError("packed queries need block_table and max_queries: pass them, and q as [1, heads, all queries, head_dim]")
    for name, scales in (("k_descale", k_scale), ("v_descale", v_scale)):
        if scales is None:
            continue
        check_array(name, scales, q, torch.float32)
        if not is_e4m3_cache(q, k):
            raise ValueError(f"{name} is for a float8_e4m3fn cache with q in 16 bits, and k is {k.dtype}, q {q.dtype}: leave it out")
        if scales.shape != (q.shape[0], k.shape[1]):
            raise ValueError(f"{name} is {tuple(scales.shape)}: pass {(q.shape[0], k.shape[1])}, [batch, kv_heads]")
    arrays = {"lengths": lengths, "sink_logits": sinks, "paddings": paddings, "k_scale": k_scale, "v_scale": v_scale}
    names = frozenset(name for name, array in arrays.items() if array is not None)
    given = dims_of(slopes), names, 0 if first_query is None else max_queries, unsplit
    key = ("decode", q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, scale,
           left, right, softcap, given, None if pages is None else pages.shape)
    plan = _plans.get(key)
    return plan_of(key, lambda: plan_decode(q, k, v, pages, scale, left, right, softcap, *given)) if plan is None else plan


def check_decode(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, pages: Tensor | None, scale: float, *rules: Any) -> None:
    """Raises all errors that `decode` raises, and runs nothing."""
    plan = decode_plan(q, k, v, lengths, pages, scale, *rules)
    if plan.copies:
        decode_plan(*as_copied((q, k, v), False), lengths, pages, scale, *rules)


def first_page_per_sequence(tensor: Tensor, batch: int) -> Tensor:
    """Returns the first page, expanded to one per sequence; a template if `tensor` has no storage."""
    if tensor.untyped_storage().nbytes():
        return tensor[:1].expand(batch, *tensor.shape[1:])
    return tensor.new_empty_strided((batch, *tensor.shape[1:]), (0, *tensor.stride()[1:]))


def is_prompt(q: Tensor, k: Tensor, pages: Tensor | None, max_queries: int, unsplit: bool) -> bool:
    """Returns whether a sequence has more rows than a block of chapter 8, chapter 9 can read the pages, and there are
    enough tiles in total."""
    if q.dim() != 4 or k.dim() != 4 or not k.shape[1]:
        return False
    batch, heads, queries, _ = q.shape
    group = heads // k.shape[1]
    shared = next(count for count in (4, 2, 1) if group % count == 0)  # number of heads per tile of chapter 9
    tiles = batch * (heads // shared) * -(-queries * shared // TILE_ROWS)
    if (max_queries or queries) * group <= MAX_ROWS or (tiles < MIN_TILES and not unsplit):
        return False
    rows = k.shape[2]
    return pages is None or (rows >= MIN_PAGE_ROWS and (pages.shape[1] == 1 or rows & (rows - 1) == 0))


def choose_decode(rows: int, contiguous: bool, page_rows: int, e4m3: bool, prompt: bool, many: bool = False) -> tuple[int, str, str]:
    """Returns the chapter and step of attention against a cache, and the reason. `rows` is queries per sequence times
    query heads per key head. `contiguous`: a head's rows are contiguous. `page_rows` is 0 without pages. `many`:
    sequences times key heads exceed the multiprocessors."""
    if e4m3:
        return DECODING, E4M3_CACHE, "a cache of one byte per element"
    if prompt:
        return MASKS, PROMPTS, "many queries against a cache"
    if rows > FEW_ROWS and not 0 < page_rows < MIN_PAGE_ROWS:
        return DECODING, WARPGROUP, f"a cache, and more than {FEW_ROWS} rows (queries times heads per key head)"
    if rows <= FEW_ROWS and contiguous:
        return DECODING, EQUAL_WORK, "a cache in which the keys of a head are contiguous"
    if many and MIN_PAGE_ROWS <= page_rows < SHORT_PAGE_ROWS:  # random pages take longer to load, and this step's ring is deeper
        return DECODING, WARPGROUP, f"a large batch with pages of fewer than {SHORT_PAGE_ROWS} rows"
    return DECODING, BOXES, "a cache in which the keys of several heads are interleaved"


def chosen_decode(q: Tensor, k: Tensor, v: Tensor, pages: Tensor | None, of_chapter_8: bool, max_queries: int,
                  unsplit: bool) -> tuple[int, str, str]:
    """Calls choose_decode for the tensors of a call. `unsplit`: choose independently of the batch."""
    if k.shape[3] == LATENT_DIM:
        return DECODING, LATENT, "a second product in the scores"
    rows = (max_queries or q.shape[2]) * (q.shape[1] // k.shape[1])
    contiguous = k.stride(2) == k.shape[3] and v.stride(2) == v.shape[3]
    prompt = not of_chapter_8 and is_prompt(q, k, pages, max_queries, unsplit)
    page_rows = 0 if pages is None or (pages.shape[1] == 1 and k.shape[2] >= MIN_PAGE_ROWS) else k.shape[2]
    many = not unsplit and q.shape[0] * k.shape[1] > MULTIPROCESSORS
    return choose_decode(rows, contiguous, page_rows, is_e4m3_cache(q, k), prompt, many)


def plan_decode(q: Tensor, k: Tensor, v: Tensor, pages: Tensor | None, scale: float, left: int, right: int, softcap: float, slopes: int,
                arrays: frozenset[str], max_queries: int, unsplit: bool) -> Plan:
    """Plans a call that is given `arrays`, named as the fields of their features, and slopes of as many dimensions."""
    if pages is None:
        check_tensors(q, k, v, True)
    else:
        if pages.dim() != 2 or (pages.shape[0] != q.shape[0] and not max_queries):
            raise ValueError(f"block_table is {tuple(pages.shape)}: pass ({q.shape[0]}, max pages per sequence)")
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}: pass one shape")
        one_page = [first_page_per_sequence(tensor, q.shape[0]) if tensor.dim() == 4 and len(tensor) else tensor for tensor in (k, v)]
        check_tensors(q, *one_page, True)
    e4m3, paddings = is_e4m3_cache(q, k), "paddings" in arrays
    functions = softcap > 0 or slopes > 0 or "sink_logits" in arrays
    if e4m3 and is_padded(q):
        wider = next(dim for dim in HEAD_DIMS if dim > q.shape[3])
        raise NotImplementedError(f"head_dim is {q.shape[3]}, and a cache in float8_e4m3fn supports {', '.join(map(str, HEAD_DIMS))}: make it with "
                                  f"{wider} columns, pad q, k and v with 0 and pass softmax_scale, or use a 16-bit cache")
    if e4m3 and (functions or left >= 0 or right > 0 or paddings or max_queries):
        raise NotImplementedError("a float8_e4m3fn cache does not support window_size, softcap, alibi_slopes, s_aux, cache_leftpad or packed "
                                  "queries: leave them out, or use a 16-bit cache")
    chapter, step, reason = chosen_decode(q, k, v, pages, e4m3 or functions or paddings, max_queries, unsplit)
    plan = planned(Plan(chapter=chapter, step=step, reason=reason), (q, k, v), scale, left, right, softcap, slopes, -1)
    plan.results = without_memory(result(q, q.dtype, v.shape[3])), lse_without_memory(q)
    if plan.sizes is None:
        return plan
    if "lengths" in arrays:
        add(plan, "Lengths", "lengths")
    if pages is not None:
        plan.sizes.seqlen_k = pages.shape[1] * k.shape[2]
        add(plan, "Pages", "page_table", page_rows=k.shape[2], pages=k.shape[0])
    if max_queries and pages is not None:
        plan.sizes.batch, plan.sizes.seqlen_q = pages.shape[0], max_queries
        layout = plan.features["Layout"]
        layout.q.batch = layout.o.batch = max(q.stride(1), q.stride(2)) * max(q.shape[1], max_queries)
        add(plan, "PackedQueries", "first_query", queries=q.shape[2])
        if slopes == 2:
            plan.features["Alibi"].sequences = pages.shape[0]
    if "sink_logits" in arrays:
        add(plan, "Sinks", "sink_logits")
    if paddings:
        add(plan, "Paddings", "paddings")
    if e4m3:
        add(plan, "Scales", *sorted(arrays & {"k_scale", "v_scale"}), scaling=SCALE_PER_HEAD)
    if unsplit:
        add(plan, "Unsplit")
    return described(plan, "attention", q.device)


# ---- bypassing PyTorch's dispatcher ------------------------------------------------------------------------------------------------


def is_untraced(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Returns whether nothing but autograd needs to see the call: no compiler, tracer, mode, transform or subclass.
    The call can then bypass PyTorch's dispatcher, which would take longer than the rest of the call."""
    return not (is_dynamo_compiling() or type(q) is not Tensor or type(k) is not Tensor or type(v) is not Tensor or modes()
                or are_transforms_active() or tracing_state() is not None or may_have_tangents())


def wants_gradient(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return bool((q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled())


class _Once(torch.autograd.Function):
    """A backward pass as a node of the graph that create_graph=True builds. Its inputs include q, k, v and O, so that a
    derivative with respect to any of them reaches this node."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Any], *tensors: Tensor | None) -> Any:
        return compute(*tensors)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> Any:
        raise NotImplementedError(NO_SECOND)


def once(compute: Callable[..., Any], *tensors: Tensor | None) -> Any:
    """Returns compute(*tensors), gradients that cannot be differentiated again. PyTorch's once_differentiable raises only
    if dO requires a gradient, and otherwise treats the part that goes through q, k and v as 0."""
    return _Once.apply(compute, *tensors) if torch.is_grad_enabled() else compute(*tensors)


def is_batched(d_o: Tensor, d_lse: Tensor | None) -> bool:
    """Returns whether a backward pass gets a batch of gradients from vmap, which handles operators but not pointers."""
    return are_transforms_active() or is_batch_of_gradients(d_o) or (d_lse is not None and is_batch_of_gradients(d_lse))


class UntracedCall(torch.autograd.Function):
    """The autograd function of such a call. `backward_pass` takes dO, the gradient of the log-sum-exp, q, k, v, O and the log-sum-exp."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, forward_pass: Callable[..., Any],
                backward_pass: Callable[..., Any]) -> tuple[Tensor, Tensor]:
        o, lse = forward_pass(q, k, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.backward_pass = backward_pass
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        if d_o is None and d_lse is None:
            return (None,) * 5
        saved = ctx.saved_tensors
        if d_o is None:
            d_o = torch.zeros_like(saved[3])
        return (*once(ctx.backward_pass, d_o, d_lse, *saved), None, None)


# Conversions between views, [batch, heads, seqlen, head_dim], and callers' tensors, [batch, seqlen, heads, head_dim] or packed
# [tokens, heads, head_dim].


def packed_to_view(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1).unsqueeze(0)


def view_to_packed(tensor: Tensor) -> Tensor:
    return tensor.squeeze(0).transpose(0, 1)


def heads_and_rows_exchanged(tensor: Tensor) -> Tensor:
    return tensor.transpose(1, 2)


def plan_to_repeat(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, first_query: Tensor | None,
                   first_key: Tensor | None) -> Plan | None:
    """Returns the plan of a forward pass whose only arrays are these; None if the tensors need copies. Raises the
    call's errors."""
    if missing_columns(q, k, v) or v.shape[-1] > MAX_HEAD_DIM:
        return None
    if v.shape[-1] != q.shape[-1] and (softcap > 0 or (wants_gradient(q, k, v) and not has_gradient_of_values(q.shape[-1], v.shape[-1]))):
        return None
    if wants_gradient(q, k, v):
        check_gradient(q, v.shape[3], is_masked(left, right, softcap, False, -1 if first_query is None else 0))
    plan = forward_plan(q, k, v, scale, left, right, softcap, None, first_query, 0, 0, NO_SCALES)
    check_arrays(q, None, first_query, first_key)
    return None if plan.copies else plan


class CachedCall:
    """A remembered call: the work that remains for each later call with the same sizes and strides.

    It accepts the callers' tensors directly, without making views. A call also has up to two arrays: the beginnings of
    packed sequences or, against a cache, each sequence's number of keys and the pages.
    """

    def __init__(self, plan: Plan, options: tuple[Any, ...], has_empty_rows: bool, packed: bool = False) -> None:
        self.plan, self.options = plan, options  # template without the arrays
        self.has_empty_rows = has_empty_rows  # possibly
        self.packed = packed
        self.view, self.given = (packed_to_view, view_to_packed) if packed else (heads_and_rows_exchanged, heads_and_rows_exchanged)
        self.results = self.template(plan.results[0]), self.lse_template(plan.results[1])
        self.gradients: dict[object, tuple[Any, ...]] = {}  # see RepeatedCall
        self.is_allowed = False  # whether the gradient has passed its checks
        self.is_direct = plan.index >= 0 and not plan.empty and (plan.workspace == 0 or plan.counts)
        self.is_short = plan.results[1].nbytes <= SCRATCH
        # Keyed by stream and thread: addresses for the log-sum-exp and the workspace, and their tensors.
        self.kept: dict[tuple[int, int], tuple[int, int, tuple[Tensor, ...]]] = {}

    def template(self, like: Tensor) -> Tensor:
        """Returns a template, in the callers' layout, of a view's result or gradient."""
        if not self.packed:
            return with_heads_and_rows_exchanged(like)
        (_, heads, rows, columns), (_, *strides, last) = like.shape, like.stride()
        return without_memory(torch.empty_strided((rows, heads, columns), (strides[1], strides[0], last), dtype=like.dtype, device=like.device))

    def lse_template(self, like: Tensor) -> Tensor:
        return without_memory(torch.empty(like.shape[1:], dtype=like.dtype, device=like.device)) if self.packed else like

    def is_deterministic(self, asked: bool, q: Tensor) -> bool:
        """Returns whether the gradient must be deterministic. Raises the gradient's errors."""
        if not self.is_allowed:
            check_gradient(q, self.plan.results[0].shape[3], self.plan.masked)
            self.is_allowed = True
        return is_deterministic(asked)

    def again(self, q: Tensor, k: Tensor, v: Tensor, first: Tensor | None, second: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the slow path, for tensors that must be copied or are not on the current device, for CUDA graphs, and
        for the simulator."""
        o, lse = forward(self.view(q), self.view(k), self.view(v), *self.options, first, second, False, 0, 0)
        return self.given(o), lse[0] if self.packed else lse

    def forward(self, q: Tensor, k: Tensor, v: Tensor, first: Tensor | None = None, second: Tensor | None = None,
                wants_lse: bool = True, ctx: Any = None) -> tuple[Tensor, Tensor | None]:
        """Returns O and the log-sum-exp. An unwanted log-sum-exp may go to scratch memory that all calls on the stream
        share, and is returned as None. `ctx`, if given, receives the addresses, for the gradient."""
        plan, q_place, k_place, v_place = self.plan, q.data_ptr(), k.data_ptr(), v.data_ptr()
        if not self.is_direct or (q_place | k_place | v_place) & 15 or current_device() != plan.index:
            return self.again(q, k, v, first, second)
        stream = raw_stream(plan.index)
        if stream and is_capturing():  # the legacy stream, 0, cannot be captured
            return self.again(q, k, v, first, second)
        kept = self.kept.get((stream, get_ident()))
        if kept is None:
            kept = self.keep(stream)
        o = empty_like(self.results[0])
        lse = empty_like(self.results[1]) if wants_lse or not self.is_short else None
        o_place, lse_place = o.data_ptr(), kept[0] if lse is None else lse.data_ptr()
        before = plan.first if first is None and second is None else plan.with_arrays(first, second)
        if status := plan.call(*before, pack_tensors(TENSORS, q_place, k_place, v_place, o_place, lse_place, kept[1]), stream):
            _library.check(status)
        if ctx is not None:
            ctx.places = q_place, k_place, v_place, o_place, lse_place
        return o, lse

    def keep(self, stream: int) -> tuple[int, int, tuple[Tensor, ...]]:
        """Returns the addresses to which this thread's calls on the stream write."""
        workspace, memory = workspace_of(self.plan, stream, Tensor.data_ptr)
        unread = scratch_of(self.plan, stream)
        kept = self.kept[stream, get_ident()] = unread.data_ptr(), workspace, (unread,) if memory is None else (unread, memory)
        return kept

    def backward_again(self, d_o: Tensor, d_lse: Tensor | None, saved: tuple[Tensor, ...], deterministic: bool, first: Tensor | None,
                       second: Tensor | None, remember: bool = False) -> tuple[Tensor, ...]:
        """Returns the gradients, computed on the slow path. With `remember` the fast path may repeat the call: the caller
        sets it only if the saved tensors, q, k, v, O and the log-sum-exp, are still where they were."""
        q, k, v, o, d_o_view = views = tuple(map(self.view, (*saved[:4], d_o)))
        lse = saved[4]
        if self.packed:
            lse, d_lse = lse[None], None if d_lse is None else d_lse[None]
        call = torch.ops.flashbook.backward if is_batched(d_o, d_lse) else backward
        found = call(d_o_view, q, k, v, o, lse, *self.options, first, second, deterministic, d_lse=d_lse)  # type: ignore[misc]
        if remember and call is backward and len(self.gradients) < MAX_PLANS:
            documents = -1 if first is None else first.shape[0] - 1
            plan, stream = _plans.get(backward_key(views, *self.options[:4], 0, documents, deterministic, 0.0, -1)), raw_stream(self.plan.index)
            if plan is not None and not (plan.copies or plan.empty or (stream and is_capturing())):
                memory = scratch_of(plan, stream) if 0 < plan.workspace <= SCRATCH else None
                workspace = 0 if memory is None else memory.data_ptr()
                self.gradients[d_o.stride(), deterministic, stream, get_ident()] = plan, *map(self.template, plan.results), memory, workspace
        return tuple(map(self.given, found))


class RepeatedCall(torch.autograd.Function):
    """The autograd function of a remembered call. `call` holds the call, whether the gradient is deterministic, the two
    arrays, and whether the log-sum-exp is returned. The gradient takes the fast path if the saved tensors still have the
    addresses of the forward pass, since a tensor whose `data` has been replaced may also have other strides."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: tuple[CachedCall, bool, Tensor | None, Tensor | None, bool]) -> Any:
        known, _, first, second, wants_lse = ctx.call = call
        ctx.places = None  # remains None under saved-tensor hooks, which may change strides
        o, lse = known.forward(q, k, v, first, second, True, ctx if saved_tensor_hooks(False) is None else None)
        ctx.save_for_backward(q, k, v, o, lse)
        if not wants_lse:
            return o
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None = None) -> tuple[Tensor | None, ...]:
        known, deterministic, first, second, _ = ctx.call
        saved = q, k, v, o, lse = ctx.saved_tensors
        if d_o is None:
            if d_lse is None:
                return None, None, None, None
            d_o = torch.zeros_like(o)
        if is_grad_enabled():
            compute = lambda d_o, d_lse, *saved: known.backward_again(d_o, d_lse, saved, deterministic, first, second)
            return (*_Once.apply(compute, d_o, d_lse, *saved), None)
        if are_transforms_active() or is_batch_of_gradients(d_o) or (d_lse is not None and is_batch_of_gradients(d_lse)):
            return (*known.backward_again(d_o, d_lse, saved, deterministic, first, second), None)
        index, d_o_place, places = known.plan.index, d_o.data_ptr(), (q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr())
        stream = raw_stream(index) if index >= 0 else 0
        found = known.gradients.get((d_o.stride(), deterministic, stream, get_ident()))
        if found is None or places != ctx.places or d_o_place & 15 or current_device() != index or (stream and is_capturing()):
            return (*known.backward_again(d_o, d_lse, saved, deterministic, first, second, places == ctx.places), None)
        plan, dq_like, dk_like, dv_like, memory, workspace = found
        dq, dk, dv = empty_like(dq_like), empty_like(dk_like), empty_like(dv_like)
        if memory is None:
            memory = empty_like(plan.memory)
            workspace = memory.data_ptr()
        d_lse = None if d_lse is None else d_lse.contiguous()  # kept alive until the launch
        gradients = pack_gradients(GRADIENTS, d_o_place, dq.data_ptr(), dk.data_ptr(), dv.data_ptr(), 0, 0 if d_lse is None else d_lse.data_ptr())
        before = plan.first if first is None or second is None else plan.with_arrays(first, second)
        if status := plan.call(*before, pack_tensors(TENSORS, *places, workspace), gradients, stream):
            _library.check(status)
        return dq, dk, dv, None


apply_repeated = without_checks(RepeatedCall)


class CachedDecode(CachedCall):
    """A remembered call against a cache, without gradients; `options` are the scale and the options of decode."""

    def again(self, q: Tensor, k: Tensor, v: Tensor, first: Tensor | None, second: Tensor | None) -> tuple[Tensor, Tensor]:
        o, lse = decode(self.view(q), self.view(k), self.view(v), first, second, *self.options)
        return self.given(o), lse


# ---- registration with PyTorch -----------------------------------------------------------------------------------------------------


_OPTIONS = "float scale, int left, int right, float softcap, Tensor? slopes, Tensor? first_query, Tensor? first_key, bool deterministic"
_definitions = torch.library.Library("flashbook", "DEF")
_definitions.define(f"forward(Tensor q, Tensor k, Tensor v, {_OPTIONS}, int chapter, int step, Tensor? q_scale=None, Tensor? k_scale=None, "
                    "Tensor? v_scale=None, float dropout=0.0, Tensor? seed=None, Tensor? bias=None) -> (Tensor, Tensor)")
_definitions.define(f"backward(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_OPTIONS}, float dropout=0.0, Tensor? seed=None, "
                    "Tensor? bias=None, Tensor? d_lse=None) -> (Tensor, Tensor, Tensor)")
_definitions.define(f"backward_with_bias(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor bias, {_OPTIONS}, float dropout=0.0, "
                    "Tensor? seed=None, Tensor? d_lse=None) -> (Tensor, Tensor, Tensor, Tensor)")
_definitions.define("decode(Tensor q, Tensor k, Tensor v, Tensor? lengths, Tensor? pages, float scale, int left=-1, int right=-1, float softcap=0.0, "
                    "Tensor? slopes=None, Tensor? sinks=None, Tensor? paddings=None, Tensor? first_query=None, int max_queries=0, "
                    "Tensor? k_scale=None, Tensor? v_scale=None, bool unsplit=False) -> (Tensor, Tensor)")
for _operator in (forward, backward, backward_with_bias, decode):
    for _place in ("CPU", "CUDA"):
        _definitions.impl(_operator.__name__, _operator, _place)


@torch.library.register_fake("flashbook::forward")
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    o = result(q, torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype, v.shape[3])
    return o, torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


@torch.library.register_fake("flashbook::backward")
def _(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return result(q, q.dtype), result(k, k.dtype), result(v, v.dtype)


@torch.library.register_fake("flashbook::backward_with_bias")
def _(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, bias: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return result(q, q.dtype), result(k, k.dtype), result(v, v.dtype), torch.empty_like(bias)


@torch.library.register_fake("flashbook::decode")
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return result(q, q.dtype, v.shape[3]), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *options, slopes, first_query, first_key, deterministic, _, _, _, _, _, dropout, seed, bias = inputs
    masked = is_masked(*options[1:], slopes is not None, -1 if first_query is None else 0, dropout, reach_of(bias))
    check_gradient(q, v.shape[3], masked)
    check_bias_gradient(bias, deterministic)
    ctx.save_for_backward(q, k, v, *output, slopes, first_query, first_key, seed, bias)
    ctx.options, ctx.deterministic, ctx.dropout = options, deterministic, dropout
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    if d_o is None and d_lse is None:
        return (None,) * 19
    q, k, v, o, lse, *arrays, seed, bias = ctx.saved_tensors
    d_o = torch.zeros_like(o) if d_o is None else d_o
    options = *ctx.options, *arrays, ctx.deterministic, ctx.dropout, seed
    if ctx.needs_input_grad[-1]:
        *found, d_bias = torch.ops.flashbook.backward_with_bias(d_o, q, k, v, o, lse, bias, *options, d_lse)
        return (*found, *(None,) * 15, d_bias)
    found = torch.ops.flashbook.backward(d_o, q, k, v, o, lse, *options, bias, d_lse)
    return (*found, *(None,) * 16)


def _no_second(ctx: Any, *_: Any) -> None:
    raise NotImplementedError(NO_SECOND)


def _no_gradient_of_a_cache(ctx: Any, *_: Any) -> None:
    raise NotImplementedError("a cache has no gradient: use flash_attn_func")


torch.library.register_autograd("flashbook::forward", _gradient, setup_context=_keep, lib=_definitions)
torch.library.register_autograd("flashbook::backward", _no_second, lib=_definitions)
torch.library.register_autograd("flashbook::backward_with_bias", _no_second, lib=_definitions)
torch.library.register_autograd("flashbook::decode", _no_gradient_of_a_cache, lib=_definitions)
