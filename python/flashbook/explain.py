"""Explains what a call would run, without running it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flashbook import _library, flash_mla, ops


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The kernel that a call would run, with the reason."""

    operation: str  # "forward", "decode" or "backward"
    chapter: int
    step: str  # its slug: "persistent"
    name: str  # name of the step
    reason: str
    machine: str  # "CPU", "simulator" or "sm_90"
    copied: tuple[str, ...]  # names of tensors of which kernels read copies
    workspace: int  # size in addition to inputs and outputs
    backward: "Explanation | None" = None  # explanation of the gradient, if a tensor requires one

    def __str__(self) -> str:
        copied = f", after copies of {', '.join(self.copied)}" if self.copied else ""
        text = f"{self.operation}: chapter {self.chapter}, {self.step} ({self.name}) on {self.machine}{copied}: {self.reason}"
        return text if self.backward is None else f"{text}\n{self.backward}"


def explain(function: Callable[..., Any], *arguments: Any, **options: Any) -> Explanation:
    """Returns what `function(*arguments, **options)` would run, for any function of this package. Nothing is launched
    or written to a cache. The tensors must exist, since the answer depends on their layout. Raises the call's errors.

        print(flashbook.explain(flashbook.flash_attn_func, q, k, v, causal=True))
    """
    seen: list[tuple[Explanation, Callable[[], Explanation]]] = []
    with _Recorder(seen, {_storage(value) for value in (*arguments, *options.values()) if isinstance(value, Tensor)}):
        found = function(*arguments, **options)
    if not seen:
        raise ValueError(f"{getattr(function, '__name__', function)} calls no kernel of this package: pass flash_attn_func, attention, ...")
    explanation, backward = seen[0]
    result = found[0] if isinstance(found, tuple) else found
    return dataclasses.replace(explanation, backward=backward()) if result.requires_grad else explanation


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


class _Recorder(TorchDispatchMode):
    """Intercepts the operator: records what it and its gradient would run, and returns empty results."""

    def __init__(self, seen: list[tuple[Explanation, Callable[[], Explanation]]], given: set[int]) -> None:
        super().__init__()
        self.seen = seen
        self.given = given  # the storages of the caller's tensors: q, k and v in others are copies

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: tuple[Any, ...] = (), options: Mapping[str, Any] | None = None) -> Any:
        if operator is torch.ops.aten.index_put_.default:
            return arguments[0]  # explains the call without appending new keys
        if operator is torch.ops.flashbook.sparse.default:
            plan = flash_mla.plan_of(*arguments)[0]
            explanation = _explanation("decode", plan, plan.reason, {})
            self.seen.append((explanation, lambda: explanation))
            return flash_mla.results(*arguments)
        if operator not in (torch.ops.flashbook.forward.default, torch.ops.flashbook.decode.default):
            return operator(*arguments, **(options or {}))
        q, k, v = arguments[:3]
        o = ops.result(q, torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype, v.shape[3])
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        explanation = (_explain_forward if operator is torch.ops.flashbook.forward.default else _explain_decode)(*arguments)
        copied = {name for name, tensor in (("q", q), ("k", k), ("v", v)) if _storage(tensor) not in self.given}
        explanation = dataclasses.replace(explanation, copied=tuple(name for name in ("q", "k", "v") if name in copied | set(explanation.copied)))
        self.seen.append((explanation, lambda: _explain_backward(o, *arguments)))
        return o, lse


def _explanation(operation: str, plan: ops.Plan, reason: str, named: dict[str, Tensor]) -> Explanation:
    copied = tuple(name for name, tensor in named.items() if not ops.is_readable(tensor, plan.compact) or tensor.data_ptr() % 16)
    major = "sm_" + "".join(map(str, torch.cuda.get_device_capability(plan.index))) if plan.index >= 0 else "CPU"
    step, c = _library.step(plan.chapter, plan.step), _library.library()
    slug, name = (text(plan.chapter, step).decode() for text in (c.flashbook_step_slug, c.flashbook_step_name))
    return Explanation(operation, plan.chapter, slug, name, reason, "simulator" if plan.simulated else major, copied, plan.workspace)


def _explain_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
                first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, chapter: int, step: int,
                q_scale: Tensor | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None, dropout: float = 0.0,
                seed: Tensor | None = None, bias: Tensor | None = None) -> Explanation:
    scales = q_scale, k_scale, v_scale
    if bias is not None:
        ops.check_bias(q, bias)
    options = scale, left, right, softcap, slopes, first_query, chapter, step, scales, dropout, ops.reach_of(bias)
    plan = ops.forward_plan(q, k, v, *options)
    if plan.masked:
        ops.check_arrays(q, slopes, first_query, first_key)
    asked = "asked for"
    if not chapter and v.shape[3] != q.shape[3]:
        asked = f"values of {v.shape[3]} columns, and keys of {q.shape[3]}"
    elif not chapter:
        masked = ops.is_masked(left, right, softcap, slopes is not None, -1 if first_query is None else 0, dropout, ops.reach_of(bias))
        functions = softcap > 0 or slopes is not None or dropout > 0 or bias is not None
        *_, asked = ops.choose(q.device.type == "cpu", ops.is_hopper(q.device), q.dtype, q.shape[2], masked, functions, first_query is not None,
                               ops.is_padded(q))
    if plan.copies:  # the plan for the copies knows the workspace
        there = ops.forward_plan(*ops.as_copied((q, k, v), plan.compact), *options)
        plan = dataclasses.replace(plan, workspace=there.workspace)
    return _explanation("forward", plan, asked, {"q": q, "k": k, "v": v})


def _explain_decode(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, pages: Tensor | None, scale: float, *rules: Any) -> Explanation:
    ops.check_decode(q, k, v, lengths, pages, scale, *rules)
    plan = ops.decode_plan(q, k, v, lengths, pages, scale, *rules)
    return _explanation("decode", plan, plan.reason, {"q": q, "k": k, "v": v})


def _explain_backward(o: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
                 first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, chapter: int, step: int,
                 q_scale: Tensor | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None, dropout: float = 0.0,
                 seed: Tensor | None = None, bias: Tensor | None = None) -> Explanation:
    documents = -1 if first_query is None else first_query.shape[0] - 1
    inputs = ops.as_copied((q, k, v, o, o), False)
    plan = ops.plan_backward(inputs, scale, left, right, softcap, ops.dims_of(slopes), documents, deterministic, dropout, ops.reach_of(bias))
    reason = "the gradient under a mask" if plan.chapter == ops.MASKS else f"the {'deterministic' if deterministic else 'fastest'} gradient"
    if v.shape[3] != q.shape[3]:
        reason = f"values of {v.shape[3]} columns, and keys of {q.shape[3]}"
    return _explanation("backward", plan, reason, {"q": q, "k": k, "v": v})
