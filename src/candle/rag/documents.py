"""Documents from files and Python values: text, Markdown and JSON lines, checked on the way in.

A document has an id that stays the same when it is added again: its own, the path of its file
below the folder that was given, or (JSON lines and strings without one) the hash of its content.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ..errors import FormatError, NameNotFoundError, OptionError
from ..formats.paths import as_path
from ..formats.tree import refuse_huge

TEXT_SUFFIXES = {".txt": "text", ".md": "markdown", ".markdown": "markdown"}
LINE_SUFFIXES = (".jsonl", ".ndjson")
PACKAGE_SUFFIX = ".candle"
MAX_LINE = 64 << 20  # bytes in one JSON line
MAX_ID = 1024  # bytes of a document's id; a chunk's may be a little longer
MAX_BITS = 1024  # of a whole number in metadata
_KEYS = ("id", "text", "metadata")
_BOMS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """One document to be added. `where` says where it came from, for messages."""

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    format: str = "text"  # or "markdown"
    where: str = ""

    def digest(self) -> str:
        """A hash of the content, by which an unchanged document is known."""
        return _digest(self.text, self.metadata, self.format)


def read_documents(path: str | Path) -> Iterator[SourceDocument]:
    """The documents of a `.txt`, `.md` or `.jsonl` file, or of a folder of those, in path order.

    Raises NameNotFoundError when there is nothing at `path`, and FormatError, naming file and
    line, for what cannot be read exactly: wrong encoding, malformed JSON, a repeated id.
    """
    path = as_path(path, "read documents")
    return _read(path)


def _read(path: Path) -> Iterator[SourceDocument]:
    if os.path.isdir(path):
        files, _ = folder_files(path)
        for file in files:
            name = (Path(path.resolve().name) / file.relative_to(path)).as_posix()
            yield from _read_file(file, name)
        return
    if os.path.exists(path) and not path.is_file():  # opening a pipe would wait for its writer
        raise OptionError(f"read {path}", "a file or folder", "a device, pipe or socket")
    if not os.path.isfile(path):
        raise NameNotFoundError("read documents", "a file or folder", str(path)[:300])
    yield from _read_file(path, path.name)


def folder_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files below `folder` that can be read, and those that are of no known kind; sorted.

    Hidden files and folders (".git") belong to neither. Of no known kind are links to folders,
    which are not followed, links that lead nowhere, devices, pipes and sockets too.
    """
    readable: list[Path] = []
    other: list[Path] = []
    for file in sorted(folder.rglob("*"), key=lambda p: p.relative_to(folder).as_posix()):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if hidden or (file.is_dir() and not file.is_symlink()):
            continue
        known = file.is_file() and file.suffix.lower() in (*TEXT_SUFFIXES, *LINE_SUFFIXES)
        (readable if known else other).append(file)
    return readable, other


def check_documents(items: Iterable[object]) -> Iterator[SourceDocument]:
    """Strings, or mappings with `text` and optionally `id` and `metadata`, to documents.

    Raises OptionError naming the position and what is wrong there.
    """
    if isinstance(items, Mapping):
        raise OptionError("documents", "a list of documents", "one mapping", "put it in a list")
    for i, item in enumerate(items):
        where = f"documents[{i}]"
        if isinstance(item, str):
            item = {"text": item}
        if not isinstance(item, Mapping):
            raise OptionError(where, "a string or a mapping", type(item).__name__)
        refuse_huge(item, where)
        try:
            yield _document(dict(item), where)
        except FormatError as error:
            raise OptionError(error.op, error.expected, error.got, error.hint) from None


def check_ids(ids: object) -> list[str]:
    """One id or several, of documents or chunks. Raises OptionError for what can be none."""
    if isinstance(ids, str):
        ids = [ids]
    if not isinstance(ids, Iterable) or isinstance(ids, bytes | Mapping):
        raise OptionError("ids", "a string or a list of strings", type(ids).__name__)
    found = []
    for i, name in enumerate(ids):
        if not isinstance(name, str):
            raise OptionError(f"ids[{i}]", "a string", type(name).__name__)
        try:
            found.append(_check_id(name, f"ids[{i}]", MAX_ID + 32))
        except FormatError as error:
            raise OptionError(error.op, error.expected, error.got) from None
    return found


def encode_metadata(metadata: Mapping[str, Any], where: str) -> str:
    """Metadata as canonical JSON. Raises FormatError for what JSON cannot hold exactly."""
    _check_values(metadata, where)
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _read_file(path: Path, name: str) -> Iterator[SourceDocument]:
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES:
        yield _read_text(path, name, TEXT_SUFFIXES[suffix])
    elif suffix in LINE_SUFFIXES:
        yield from _read_lines(path)
    else:
        known = ", ".join((*TEXT_SUFFIXES, *LINE_SUFFIXES, PACKAGE_SUFFIX))
        raise FormatError("read documents", f"one of {known}", path.name)


def _read_text(path: Path, name: str, kind: str) -> SourceDocument:
    raw = path.read_bytes()
    _refuse_bom(raw[:4], str(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        _refuse_encoding(f"{path}:{line}", error)
    return SourceDocument(name, text, {"source": name}, kind, str(path))


def _read_lines(path: Path) -> Iterator[SourceDocument]:
    seen: dict[str, int] = {}
    with path.open("rb") as file:
        for number, line in _lines(file, path):
            document = _parse_line(line, f"{path}:{number}")
            if document is None:
                continue
            first = seen.setdefault(document.id, number)
            if first != number and "id" in json.loads(line.decode().strip()):
                raise FormatError(
                    document.where,
                    "an id used once",
                    repr(document.id),
                    f"it is on line {first} too",
                )
            yield document


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            _refuse_bom(line[:4], str(path))
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) > MAX_LINE:
            raise FormatError(f"{path}:{number}", f"a line of at most {MAX_LINE} bytes", "more")
        yield number, line


def _parse_line(line: bytes, where: str) -> SourceDocument | None:
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        _refuse_encoding(where, error)
    if not text:
        return None
    value = _parse_json(text, where)
    if not isinstance(value, dict):
        raise FormatError(where, "a JSON object with a text", type(value).__name__)
    return _document(value, where)


def _parse_json(text: str, where: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            counts = Counter(name for name, _ in items)
            twice = next(name for name, count in counts.items() if count > 1)
            raise FormatError(where, "each key once", f"{twice!r} twice")
        return found

    def constant(name: str) -> NoReturn:
        raise FormatError(where, "numbers that JSON knows", name)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise FormatError(
            where, "one JSON object a line", f"{error.msg} at column {error.colno}"
        ) from None
    except RecursionError:
        raise FormatError(where, "JSON nested less deeply", "more levels than fit") from None
    except ValueError as error:  # a number with thousands of digits
        if isinstance(error, FormatError):
            raise
        raise FormatError(where, "numbers of ordinary length", str(error)) from None


def _document(value: dict[Any, Any], where: str) -> SourceDocument:
    for key in value:
        if key not in _KEYS:
            raise FormatError(
                where, "only id, text and metadata", repr(key), "put further fields under metadata"
            )
    if "text" not in value:
        raise FormatError(where, "a text", f"only {', '.join(map(str, value)) or 'nothing'}")
    text, metadata = value["text"], value.get("metadata")
    if not isinstance(text, str):
        raise FormatError(f"{where} text", "a string", type(text).__name__)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, Mapping):
        raise FormatError(f"{where} metadata", "an object", type(metadata).__name__)
    metadata = dict(metadata)
    _check_text(text, f"{where} text")
    _check_values(metadata, f"{where} metadata")
    given = value.get("id")
    name = _digest(text, metadata, "text")[:32] if given is None else _check_id(given, where)
    return SourceDocument(name, text, metadata, "text", where)


def _check_id(value: object, where: str, most: int = MAX_ID) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > 64:
            got = f"one of {value.bit_length()} bits"
            raise FormatError(f"{where} id", "a whole number of at most 64 bits", got)
        return str(value)
    if not isinstance(value, str):
        raise FormatError(f"{where} id", "a string or a whole number", type(value).__name__)
    if not value.strip():
        raise FormatError(f"{where} id", "a name", repr(value))
    _check_text(value, f"{where} id")
    size = len(value.encode())
    if size > most:
        raise FormatError(f"{where} id", f"at most {most:,} bytes", f"{size:,}")
    return value


def _check_text(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        got = f"a lone surrogate U+{ord(text[error.start]):04X} at character {error.start}"
        raise FormatError(where, "text that UTF-8 can hold", got) from None


def _check_values(value: object, where: str, depth: int = 0) -> None:
    """Raises FormatError unless `value` survives JSON unchanged; at most 64 levels."""
    if depth > 64:
        raise FormatError(where, "at most 64 levels", "more")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise FormatError(where, "keys that are strings", repr(key))
            _check_text(key, where)
            _check_values(item, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check_values(item, f"{where}[{i}]", depth + 1)
    elif isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise FormatError(where, "a finite number", value)
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        got = f"one of {value.bit_length():,} bits"
        raise FormatError(where, f"a whole number of at most {MAX_BITS:,} bits", got)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise FormatError(where, "what JSON can hold", type(value).__name__)


def _digest(text: str, metadata: Mapping[str, Any], kind: str) -> str:
    content = json.dumps([text, metadata, kind], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def _refuse_bom(head: bytes, where: str) -> None:
    for mark, name in _BOMS.items():
        if head.startswith(mark):
            raise FormatError(where, "UTF-8", name, "save it as UTF-8")


def _refuse_encoding(where: str, error: UnicodeDecodeError) -> NoReturn:
    bad = error.object[error.start : error.start + 1].hex()
    raise FormatError(where, "UTF-8", f"byte 0x{bad} at offset {error.start}") from None
