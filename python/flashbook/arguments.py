"""Checks arguments: numbers, flags, windows and tensors. An error names the argument and says what to pass instead.

Numbers may come from Python or NumPy. A tensor is not accepted as a number, since reading it would wait for the device. Flags and numbers are kept
apart so that arguments in the other interface's order raise an error and are not misread.
"""

import math
from numbers import Integral, Real

import torch
from torch import Tensor

_ORDER = "positional arguments follow {order}'s order here; {other}'s functions are in {module}"
ORDER_2 = _ORDER.format(order="FlashAttention-2", other="FlashAttention-3", module="flashbook.flash_attn_3")
ORDER_3 = _ORDER.format(order="FlashAttention-3", other="FlashAttention-2", module="flashbook")


def shown(value: object) -> str:
    """Returns the value as errors show it."""
    if isinstance(value, Tensor):
        return f"a tensor on {value.device}"
    return repr(value) if value is None or isinstance(value, (bool, int, float, str, tuple)) else f"a {type(value).__module__}.{type(value).__name__}"


def _wrong_type(name: str, value: object, cure: str, order: str) -> TypeError:
    return TypeError(f"{name} is {shown(value)}: pass {cure}{order and f' ({order})'}")


def number(name: str, value: object, order: str = "") -> float:
    if isinstance(value, (Real, torch.SymFloat, torch.SymInt)) and not isinstance(value, bool):
        return float(value)
    cure = "a number; .item() reads it, and waits for the device" if isinstance(value, Tensor) else "a number"
    raise _wrong_type(name, value, cure, order)


def whole_number(name: str, value: object, order: str = "") -> int:
    if isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool):
        return int(value)
    cure = "an integer; .item() reads it, and waits for the device" if isinstance(value, Tensor) else "an integer"
    raise _wrong_type(name, value, cure, order)


def flag(name: str, value: object, order: str = "") -> bool:
    if isinstance(value, (bool, torch.SymBool)) or type(value).__name__ in ("bool", "bool_"):  # booleans of NumPy 2 and 1
        return bool(value)
    raise _wrong_type(name, value, "True or False", order)


def scale(value: object, order: str = "") -> float | None:
    """Checks softmax_scale."""
    found = None if value is None else number("softmax_scale", value, order)
    if found is not None and not 0 < found < math.inf:
        raise ValueError(f"softmax_scale is {found}: pass a finite number above 0, or None for 1 / sqrt(head_dim)")
    return found


def softcap(value: object, order: str = "") -> float:
    """Checks softcap. Values of 0 and below disable it."""
    found = number("softcap", value, order)
    if not abs(found) < math.inf:
        raise ValueError(f"softcap is {found}: pass a finite number, or 0.0 for none")
    return max(found, 0.0)


def window(value: object, order: str = "") -> tuple[int, int]:
    """Checks window_size, (left, right); -1 means all."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise _wrong_type("window_size", value, "(left, right), the number of keys before and after a query's own, -1 for all", order)
    return max(whole_number("window_size[0]", value[0]), -1), max(whole_number("window_size[1]", value[1]), -1)


def tensors(dims: int, axes: str, **named: object) -> None:
    """Raises TypeError for anything but a tensor, and ValueError for a wrong number of dimensions."""
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is {shown(value)}: pass a tensor, {axes}")
        if value.dim() != dims:
            raise ValueError(f"{name} has {value.dim()} dimensions, {tuple(value.shape)}: pass {dims}, {axes}")


def refuse(**named: tuple[object, object, str]) -> None:
    """Raises NotImplementedError for an unsupported value. Each argument is (value, the only supported value, what to
    do instead)."""
    for name, (given, only, instead) in named.items():
        if given is not only and not (isinstance(given, (int, float)) and given == only):
            raise NotImplementedError(f"{name} is {shown(given)}, and only {only} is supported here: {instead}")
