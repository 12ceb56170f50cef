"""The C interface's structs and a problem for them. The Python package's module is loaded from its file, since `import flashbook` would import
PyTorch."""

import dataclasses
import importlib.util
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashbook import _library
else:
    _spec = importlib.util.spec_from_file_location("flashbook_library", pathlib.Path(__file__).parents[1] / "python" / "flashbook" / "_library.py")
    _library = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_library)

BAD_ARGUMENT, HARDWARE_MISSING = _library.BAD_ARGUMENT, _library.HARDWARE_MISSING
Chapter, Gradients, Tensors = _library.Chapter, _library.Gradients, _library.Tensors
feature, loaded, SCALE_OF_HEAD = _library.feature, _library.loaded, _library.CONSTANTS["SCALE_OF_HEAD"]


def pointers_to(struct: Any, *tensors: Any) -> Any:
    """Returns a struct with the addresses of tensors in its first pointers."""
    return struct(**{name: tensor.data_ptr() for (name, *_), tensor in zip(struct._fields_[1:], tensors)})


@dataclasses.dataclass
class Shape:
    """A problem's sizes, whether its mask is causal, and its layout."""

    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    causal: int
    dtype: int
    scale: float
    value_dim: int = 0
    layout: Any = None  # FlashbookLayout

    def set_strides(self, **strides: tuple[int, ...]) -> None:
        """Sets the strides of tensors, of their batch entries, heads and rows."""
        self.layout = feature("Layout") if self.layout is None else type(self.layout).from_buffer_copy(self.layout)
        for name, (batch, head, row, *_) in strides.items():
            setattr(self.layout, name, _library.STRUCTS["Strides"](batch=batch, head=head, row=row))

    def described(self, *features: Any) -> Any:
        """Returns the problem with these features in memory, to be passed to a C function."""
        sizes = {name: getattr(self, name) for name, *_ in _library.Problem._fields_ if name not in ("size", "features")}
        own = [feature("Window", left=-1, right=0)] * bool(self.causal) + [self.layout] * (self.layout is not None)
        return _library.Description(_library.Problem(**sizes), *own, *features).memory
