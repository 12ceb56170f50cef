"""Loads libflashbook.so with ctypes: its structs and functions, and exceptions for its errors. Independent of PyTorch."""

import ctypes
import functools
import os
import pathlib

OK, DEVICE_ERROR, BAD_ARGUMENT, HARDWARE_MISSING = 0, 1, 2, 77  # FlashbookStatus
F32, F16, BF16, E4M3 = range(4)  # FlashbookType
MAX_SIZE = 2**31 - 1  # since the structs store sizes in 32 bits


def _strides(*tensors: str) -> list[tuple[str, type]]:
    return [(f"{tensor}_{axis}_stride", ctypes.c_int64) for tensor in tensors for axis in ("batch", "head", "row")]


class _Struct(ctypes.Structure):
    """A struct whose first field is its size."""

    def __init__(self, *fields: object, **named: object) -> None:
        super().__init__(ctypes.sizeof(type(self)), *fields, **named)


class Shape(_Struct):
    """FlashbookShape."""

    _fields_ = [("size", ctypes.c_size_t),
                *((name, ctypes.c_int32) for name in ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "causal", "dtype")),
                ("scale", ctypes.c_float), *_strides("q", "k", "v", "o"), ("scaling", ctypes.c_int32), ("value_dim", ctypes.c_int32)]


class Tensors(_Struct):
    """FlashbookTensors."""

    _fields_ = [("size", ctypes.c_size_t),
                *((name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse", "workspace", "q_scale", "k_scale", "v_scale", "k_mean", "v_mean"))]


class Cache(_Struct):
    """FlashbookCache."""

    _fields_ = [("size", ctypes.c_size_t), ("lengths", ctypes.c_void_p), ("page_table", ctypes.c_void_p), ("page_rows", ctypes.c_int32),
                ("pages", ctypes.c_int32), ("shared_keys", ctypes.c_int32), ("e4m3", ctypes.c_int32), ("paddings", ctypes.c_void_p),
                ("first_query", ctypes.c_void_p), ("queries", ctypes.c_int32), ("splits", ctypes.c_int32)]


class Mask(_Struct):
    """FlashbookMask."""

    _fields_ = [("size", ctypes.c_size_t),
                *((name, ctypes.c_int32) for name in ("window_left", "window_right", "sinks", "prefix", "documents", "slope_sequences")),
                *((name, ctypes.c_void_p) for name in ("first_query", "first_key", "columns")),
                *((name, ctypes.c_int32) for name in ("column_heads", "bounds", "block_queries", "block_keys")),
                *((name, ctypes.c_void_p) for name in ("first_block", "key_blocks", "slopes")),
                ("softcap", ctypes.c_float), ("bias_reach", ctypes.c_int32), ("bias", ctypes.c_void_p), ("seed", ctypes.c_uint64),
                ("dropout", ctypes.c_float), ("pair_heads", ctypes.c_int32), ("pairs", ctypes.c_void_p), ("sink_logits", ctypes.c_void_p)]

    def __init__(self, **named: object) -> None:
        super().__init__(**{"window_left": -1, "window_right": -1, **named})  # by default, nothing is masked


class Gradients(_Struct):
    """FlashbookGradients."""

    _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_void_p) for name in ("d_o", "dq", "dk", "dv")), *_strides("d_o", "dq", "dk", "dv"),
                ("d_bias", ctypes.c_void_p), ("d_lse", ctypes.c_void_p)]


class Chapter(ctypes.Structure):
    """FlashbookChapter."""

    _fields_ = [("number", ctypes.c_int32), ("steps", ctypes.c_int32), ("on_device", ctypes.c_int32), ("name", ctypes.c_char_p),
                ("title", ctypes.c_char_p)]


def check(status: int) -> None:
    """Raises the error of a status: ValueError for bad arguments, RuntimeError for anything else."""
    if status != OK:
        raise (ValueError if status == BAD_ARGUMENT else RuntimeError)(library().flashbook_last_error().decode())


def path() -> pathlib.Path:
    """Returns the path of the library: FLASHBOOK_LIBRARY, or the folder of this file."""
    return pathlib.Path(os.environ.get("FLASHBOOK_LIBRARY") or pathlib.Path(__file__).with_name("libflashbook.so"))


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library once. Pointers to structs are passed as integers, which is fastest."""
    if not path().exists():
        raise RuntimeError(f"{path()} is missing: build it with `pip install ./python` in a checkout, or set FLASHBOOK_LIBRARY to its path")
    c = ctypes.CDLL(str(path().resolve()))
    number, pointer = ctypes.c_int, ctypes.c_void_p
    for name, pointers in (("attention", 3), ("decode", 4), ("backward", 4), ("masked", 4), ("masked_backward", 5), ("masked_decode", 5),
                           ("workspace_bytes", 1), ("masked_workspace_bytes", 2), ("decode_workspace_bytes", 2),
                           ("masked_decode_workspace_bytes", 3)):
        getattr(c, f"flashbook_{name}").argtypes = [number, number] + [pointer] * pointers
    c.flashbook_allocate.argtypes, c.flashbook_allocate.restype = [ctypes.c_size_t], pointer
    c.flashbook_free.argtypes, c.flashbook_free.restype = [pointer], None
    for name in ("workspace_bytes", "masked_workspace_bytes", "decode_workspace_bytes", "masked_decode_workspace_bytes"):
        getattr(c, f"flashbook_{name}").restype = ctypes.c_int64
    for name in ("last_error", "toolkit", "step_name", "step_slug"):
        getattr(c, f"flashbook_{name}").restype = ctypes.c_char_p
    return c


@functools.cache
def step(chapter: int, name: str | int) -> int:
    """Returns the number of a step, given by slug or number. Raises ValueError if there is none."""
    number = int(library().flashbook_step(chapter, str(name).encode()))
    check(OK if number else BAD_ARGUMENT)
    return number


@functools.cache
def is_simulated() -> bool:
    """Returns whether the library's kernels run in the simulator, on CPU memory."""
    return bool(library().flashbook_toolkit().startswith(b"none"))


@functools.cache
def chapters() -> dict[int, tuple[int, bool]]:
    """Returns the chapters: {number: (number of steps, whether its kernels run on the device)}."""
    found = {}
    for place in range(library().flashbook_chapter_count()):
        chapter = Chapter()
        check(library().flashbook_chapter(place, ctypes.byref(chapter)))
        found[chapter.number] = (chapter.steps, bool(chapter.on_device))
    return found
