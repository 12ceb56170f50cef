"""The Python package's structs of flashbook.h, loaded from their file, since `import flashbook` would import PyTorch."""

import importlib.util
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashbook._library import BAD_ARGUMENT, HARDWARE_MISSING, Cache, Chapter, Gradients, Mask, Shape, Tensors
else:
    _spec = importlib.util.spec_from_file_location("flashbook_library", pathlib.Path(__file__).parents[1] / "python" / "flashbook" / "_library.py")
    _library = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_library)
    BAD_ARGUMENT, HARDWARE_MISSING = _library.BAD_ARGUMENT, _library.HARDWARE_MISSING
    Cache, Chapter, Gradients, Mask, Shape, Tensors = (
        _library.Cache, _library.Chapter, _library.Gradients, _library.Mask, _library.Shape, _library.Tensors)

__all__ = ["BAD_ARGUMENT", "HARDWARE_MISSING", "Cache", "Chapter", "Gradients", "Mask", "Shape", "Tensors"]
