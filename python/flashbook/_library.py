"""Loads libflashbook.so with ctypes: its functions, its structs as the C headers declare them, and exceptions for its errors. Independent of
PyTorch."""

import ctypes
import functools
import itertools
import os
import pathlib
import re
import struct
from collections.abc import Callable, Collection
from typing import Any

MAX_SIZE = 2**31 - 1  # since the structs store sizes in 32 bits


class _Struct(ctypes.Structure):
    """A struct of the C interface. Those of features begin with their kind; Problem, Tensors and Gradients with their size."""

    kind_: int | None = None

    def __init__(self, **named: object) -> None:
        super().__init__(**named)
        if hasattr(self, "size"):
            self.size = ctypes.sizeof(self)
        if self.kind_ is not None:
            self.kind = self.kind_


def _headers() -> str:
    """Returns library/flashbook.h and the features' headers, which are installed next to this file, or in the checkout."""
    here = pathlib.Path(__file__).parent
    root = here / "include" if (here / "include").exists() else here.parents[1]
    paths = sorted(root.glob("common/features/**/*_c.h"))
    return "\n".join(path.read_text(encoding="utf-8") for path in (*paths, root / "library" / "flashbook.h"))


def _parsed(headers: str) -> tuple[dict[str, type[_Struct]], dict[str, int]]:
    """Returns the structs, without Flashbook in front of their names, and all constants, without FLASHBOOK_."""
    types: dict[str, Any] = {"size_t": ctypes.c_size_t, "float": ctypes.c_float, "char*": ctypes.c_char_p}
    types |= {f"{name}_t": getattr(ctypes, f"c_{name}") for name in ("int32", "int64", "uint64")}
    structs: dict[str, type[_Struct]] = {}
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", headers, flags=re.DOTALL)
    constants = {name: int(value) for name, value in re.findall(r"FLASHBOOK_(\w+)\s*=\s*(\d+)", text)}
    for kind, name, body in re.findall(r"(?:enum \{ FLASHBOOK_(\w+) = \d+ \};\s*)?typedef struct Flashbook(\w+) \{(.*?)\}", text, re.DOTALL):
        fields: list[tuple[str, Any]] = []
        for type_, star, names in re.findall(r"(?:const )?(\w+)\s*(\*?)\s*([\w, \n]+);", body):
            c_type = types.get(type_ + star) or (ctypes.c_void_p if star else structs[type_.removeprefix("Flashbook")])
            fields += [(field.strip(), c_type) for field in names.split(",")]
        structs[name] = type(name, (_Struct,), {"_fields_": fields, "kind_": constants.get(kind)})
    return structs, constants


STRUCTS, CONSTANTS = _parsed(_headers())
Problem, Tensors, Gradients, Chapter = (STRUCTS[name] for name in ("Problem", "Tensors", "Gradients", "Chapter"))
OK, DEVICE_ERROR, BAD_ARGUMENT, HARDWARE_MISSING = (CONSTANTS[name] for name in ("OK", "DEVICE_ERROR", "BAD_ARGUMENT", "HARDWARE_MISSING"))
F32, F16, BF16, E4M3 = (CONSTANTS[name] for name in ("F32", "F16", "BF16", "E4M3"))


def feature(name: str, **values: object) -> Any:
    """Returns the struct of a feature: feature("Window", left=-1, right=0)."""
    return STRUCTS[name](**values)


class Description:
    """A problem and its features, one after another in memory. `varying` names fields of 8 bytes, pointers or a seed, that
    differ from call to call."""

    def __init__(self, problem: Any, *features: Any, varying: Collection[str] = ()) -> None:
        problem.features = len(features)
        structs = (problem, *features)
        whole = b"".join(structs)
        ends, start, at = [], 0, 0
        self.varying: list[str] = []  # in order of their places
        for struct_ in structs:
            for name, _ in struct_._fields_:
                if name in varying:
                    self.varying.append(name)
                    ends.append((start, at + getattr(type(struct_), name).offset))
                    start = ends[-1][1] + 8
            at += ctypes.sizeof(struct_)
        self.memory = ctypes.create_string_buffer(whole, len(whole))
        self.address = ctypes.addressof(self.memory)  # with the varying fields as they are in the structs
        parts = [whole[begin:end] for begin, end in ends] + [whole[start:]]
        pack = struct.Struct("=" + "".join(f"{len(part)}sQ" for part in parts[:-1]) + f"{len(parts[-1])}s").pack
        # Returns the bytes with values for the varying fields, in order.
        self.with_values: Callable[..., bytes] = lambda *values: pack(*itertools.chain.from_iterable(zip(parts, values)), parts[-1])
        if len(ends) in (1, 2):  # as in the calls that are made most often: this takes half as long
            first, *second, last = parts
            self.with_values = (lambda one, two: pack(first, one, *second, two, last)) if second else (lambda one: pack(first, one, last))


def check(status: int) -> None:
    """Raises the error of a status: ValueError for bad arguments, RuntimeError for anything else."""
    if status != OK:
        raise (ValueError if status == BAD_ARGUMENT else RuntimeError)(library().flashbook_last_error().decode())


def path() -> pathlib.Path:
    """Returns the path of the library: FLASHBOOK_LIBRARY, or the folder of this file."""
    return pathlib.Path(os.environ.get("FLASHBOOK_LIBRARY") or pathlib.Path(__file__).with_name("libflashbook.so"))


def loaded(file: pathlib.Path) -> ctypes.CDLL:
    """Returns a library with its functions declared. Pointers to structs may be integers, which is fastest."""
    c = ctypes.CDLL(str(file.resolve()))  # a name without a slash would be searched for in system folders
    number, pointer = ctypes.c_int, ctypes.c_void_p
    for name, pointers in (("attention", 3), ("backward", 4), ("workspace_bytes", 1), ("cost", 3)):
        getattr(c, f"flashbook_{name}").argtypes = [number, number] + [pointer] * pointers
    c.flashbook_allocate.argtypes, c.flashbook_allocate.restype = [ctypes.c_size_t], pointer
    c.flashbook_free.argtypes, c.flashbook_free.restype = [pointer], None
    c.flashbook_workspace_bytes.restype = ctypes.c_int64
    for name in ("last_error", "toolkit", "step_name", "step_slug"):
        getattr(c, f"flashbook_{name}").restype = ctypes.c_char_p
    return c


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library once."""
    if not path().exists():
        raise RuntimeError(f"{path()} is missing: build it with `pip install ./python` in a checkout, or set FLASHBOOK_LIBRARY to its path")
    return loaded(path())


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
