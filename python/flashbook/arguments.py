"""What may be given where a number, a flag, a window or a tensor is meant. What may not is refused by its name, with the cure.

Numbers are Python's and NumPy's. A tensor is none, since to read it would wait for the device. A flag is no number, and a number no flag: so
arguments in another interface's order are refused, where they would be misread.
"""

import math
from numbers import Integral, Real

import torch
from torch import Tensor

_ORDER = "by position, arguments are in {order}'s order here; {other}'s functions are in {module}"
ORDER_2 = _ORDER.format(order="FlashAttention-2", other="FlashAttention-3", module="flashbook.flash_attn_3")
ORDER_3 = _ORDER.format(order="FlashAttention-3", other="FlashAttention-2", module="flashbook")


def said(value: object) -> str:
    """The value in an error."""
    if isinstance(value, Tensor):
        return f"a tensor on {value.device}"
    return repr(value) if value is None or isinstance(value, (bool, int, float, str, tuple)) else f"a {type(value).__module__}.{type(value).__name__}"


def _wrong_type(name: str, value: object, cure: str, order: str) -> TypeError:
    return TypeError(f"{name} is {said(value)}: give {cure}{order and f' ({order})'}")


def number(name: str, value: object, order: str = "") -> float:
    if isinstance(value, (Real, torch.SymFloat, torch.SymInt)) and not isinstance(value, bool):
        return float(value)
    cure = "a number; .item() waits for the device and reads it" if isinstance(value, Tensor) else "a number"
    raise _wrong_type(name, value, cure, order)


def whole_number(name: str, value: object, order: str = "") -> int:
    if isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool):
        return int(value)
    cure = "an integer; .item() waits for the device and reads it" if isinstance(value, Tensor) else "an integer"
    raise _wrong_type(name, value, cure, order)


def flag(name: str, value: object, order: str = "") -> bool:
    if isinstance(value, (bool, torch.SymBool)) or type(value).__name__ in ("bool", "bool_"):  # NumPy's, 2 and 1
        return bool(value)
    raise _wrong_type(name, value, "True or False", order)


def scale(value: object, order: str = "") -> float | None:
    """softmax_scale."""
    found = None if value is None else number("softmax_scale", value, order)
    if found is not None and not 0 < found < math.inf:
        raise ValueError(f"softmax_scale is {found}: give a finite number above 0, or None for 1 / sqrt(head_dim)")
    return found


def softcap(value: object, order: str = "") -> float:
    """0 and below: none."""
    found = number("softcap", value, order)
    if not abs(found) < math.inf:
        raise ValueError(f"softcap is {found}: give a finite number, or 0.0 for none")
    return max(found, 0.0)


def window(value: object, order: str = "") -> tuple[int, int]:
    """(left, right); -1: all."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise _wrong_type("window_size", value, "(left, right), the keys before and after a query's own, -1 for all", order)
    return max(whole_number("window_size[0]", value[0]), -1), max(whole_number("window_size[1]", value[1]), -1)


def tensors(dims: int, axes: str, **named: object) -> None:
    """Raises TypeError for what is no tensor, and ValueError for one of other dimensions."""
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is {said(value)}: give a tensor, {axes}")
        if value.dim() != dims:
            raise ValueError(f"{name} has {value.dim()} dimensions, {tuple(value.shape)}: give {dims}, {axes}")


def refuse(**named: tuple[object, object, str]) -> None:
    """Raises NotImplementedError for an argument that is not what it may be. Of each: what is given, what may be, and the cure."""
    for name, (given, only, instead) in named.items():
        if given is not only and not (isinstance(given, (int, float)) and given == only):
            raise NotImplementedError(f"{name} is {said(given)}, and only {only} is taken here: {instead}")
