"""Byte parsers that know no Tensor: hostile bytes to names, dtypes, shapes and offsets."""

from __future__ import annotations

from .gguf import GgufFile
from .gguf_metadata import GgufMetadata
from .gguf_write import Typed, write_gguf
from .mapped import MappedFile
from .safetensors import SafetensorsFile
from .safetensors_folder import SafetensorsFolder, open_folder
from .safetensors_write import save_safetensors
from .table import TensorInfo, TensorTable
from .torch_file import TorchFile

__all__ = [
    "GgufFile",
    "GgufMetadata",
    "MappedFile",
    "SafetensorsFile",
    "SafetensorsFolder",
    "TensorInfo",
    "TensorTable",
    "TorchFile",
    "Typed",
    "open_folder",
    "save_safetensors",
    "write_gguf",
]
