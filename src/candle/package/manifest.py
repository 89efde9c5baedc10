"""`manifest.toml`: what a package is, what it asks for, and the hash of everything in it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from .._version import __version__
from ..errors import PackageError
from .format import MANIFEST, MAX_ENTRIES, MAX_SIZE, collision, path_fault
from .requirements import Requirements, quote

MAX_MANIFEST = 4 << 20
MAX_TEXT = 1000
_MOST_LINE = 16 * MAX_TEXT  # characters: parsing takes a hundred bytes for each
MAX_DIMENSION = 1 << 20

# The lines that a manifest may have: one bare key, one plain value. Within TOML as a whole, 4 MB of
# dotted keys keep the parser busy for a minute, and nested arrays exhaust its stack.
_STRING = r'"(?:[^"\\]|\\.)*"'
_LINE = re.compile(
    rf"(?:#.*|\[\[?[a-z_]+\]\]?|[a-z0-9_]+ = (?:{_STRING}|[0-9a-z.+:-]{{1,40}}"
    rf"|\[(?:{_STRING}(?:, )?)*\]))?"
)
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_KIND = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
_VERSION = re.compile(r"[0-9][0-9a-z.+]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")
_RESERVED_NAME = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
_KEYS = {
    "format",
    "name",
    "version",
    "kind",
    "license",
    "description",
    "created_by",
    "requirements",
    "embedder",
    "entries",
}


def created_by() -> str:
    """`candle X.Y`, for a manifest."""
    return f"candle {__version__}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a package: its path, its size in bytes and its SHA-256 in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Embedder:
    """The model that made a knowledge base's vectors: name, "sha256:..." digest and dimension."""

    name: str
    digest: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a package; `entries` is filled in by the writer.

    Every field is checked where it is made: a Manifest that exists is valid. Raises PackageError.
    """

    name: str
    version: str
    kind: str
    license: str = ""
    description: str = ""
    created_by: str = field(default_factory=created_by)
    requirements: Requirements = field(default_factory=Requirements)
    embedder: Embedder | None = None
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        op = "manifest"
        check_name(self.name, op)
        check_version(self.version, op)
        _require(_matches(_KIND, self.kind), op, "a kind such as knowledge-base", self.kind)
        for key in ("license", "description", "created_by"):
            _check_text(op, key, getattr(self, key))
        _require((self.embedder is not None) == (self.kind == "knowledge-base"), op, *_EMBEDDER)
        if self.embedder is not None:
            _check_embedder(op, self.embedder)
        _check_entries(op, self.entries)

    def to_toml(self) -> bytes:
        """The one form of these contents."""
        lines = ["format = 1"]
        for key in ("name", "version", "kind", "license", "description", "created_by"):
            lines.append(f"{key} = {quote(getattr(self, key))}")
        lines += self.requirements.to_toml()
        if self.embedder is not None:
            e = self.embedder
            lines += ["", "[embedder]", f"name = {quote(e.name)}"]
            lines += [f"digest = {quote(e.digest)}", f"dimension = {e.dimension}"]
        for entry in self.entries:
            lines += ["", "[[entries]]", f"path = {quote(entry.path)}"]
            lines += [f"size = {entry.size}", f"sha256 = {quote(entry.sha256)}"]
        return "".join(f"{line}\n" for line in lines).encode()

    @staticmethod
    def from_toml(data: bytes | memoryview, op: str) -> Manifest:
        """Read and check a manifest. Raises PackageError, its message beginning with `op`."""
        table = _load(bytes(data), op)
        version = table.get("format")
        _require(type(version) is int, op, "format = 1", table.get("format", "none"))
        _require(version == 1, op, "format 1", version, "a newer Candle wrote it: upgrade")
        unknown = table.keys() - _KEYS
        _require(not unknown, op, "known keys", ", ".join(sorted(unknown)))
        missing = {"name", "version", "kind"} - table.keys()
        _require(not missing, op, f"{', '.join(sorted(missing))} in the manifest", "none")
        try:
            return Manifest(
                name=table["name"],
                version=table["version"],
                kind=table["kind"],
                license=table.get("license", ""),
                description=table.get("description", ""),
                created_by=table.get("created_by", ""),
                requirements=Requirements.parse(table.get("requirements", {})),
                embedder=_parse_embedder(table.get("embedder")),
                entries=tuple(_parse_entries(table.get("entries", []))),
            )
        except PackageError as error:
            raise PackageError(op, error.expected, error.got, error.hint) from None


_EMBEDDER = ("[embedder] in a knowledge-base, and in no other kind", "the contrary")


def check_name(name: object, op: str) -> None:
    """Raise PackageError unless `name` can name a package on every system."""
    fits = _matches(_NAME, name) and not _RESERVED_NAME.fullmatch(str(name))
    rule = "a name of 1 to 64 of a-z 0-9 . _ -, a letter or digit at both ends"
    _require(fits, op, rule, name)


def check_version(version: object, op: str) -> None:
    """Raise PackageError unless `version` is a PEP 440 version in its normal form."""
    fits = _matches(_VERSION, version)
    try:
        fits = fits and str(Version(str(version))) == version
    except InvalidVersion:
        fits = False
    _require(fits, op, 'a version in normal form, such as "1.0"', version)


def suggest_name(text: str) -> str:
    """The valid name nearest to `text`, such as a file's stem; "model" where nothing is left."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:64].strip("._-") or "model"
    return f"{name}-1" if _RESERVED_NAME.fullmatch(name) else name


def is_digest(text: object) -> bool:
    """Whether `text` is 64 lower-case hex digits: the only thing that may become a layer's path."""
    return _matches(_HEX, text)


def _load(data: bytes, op: str) -> dict[str, Any]:
    _require(len(data) <= MAX_MANIFEST, op, f"at most {MAX_MANIFEST} bytes", len(data))
    try:
        text = data.decode()
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > _MOST_LINE or not _LINE.fullmatch(line):
                raise ValueError(f"no plain key and value in line {number}: {line[:80]!r}")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # UTF-8, TOML and out-of-range numbers are so
        raise PackageError(op, "a manifest in plain lines of TOML", str(error)[:200]) from None


def _require(holds: bool, op: str, expected: str, got: object, hint: str = "") -> None:
    if not holds:
        raise PackageError(op, expected, got if isinstance(got, int) else repr(got)[:120], hint)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _check_text(op: str, key: str, value: object) -> None:
    fits = isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()
    _require(fits, op, f"{key} as a printable line of at most {MAX_TEXT} characters", value)


def _check_embedder(op: str, embedder: Embedder) -> None:
    _check_text(op, "the embedder's name", embedder.name)
    kind, _, digest = str(embedder.digest).partition(":")
    fits = kind == "sha256" and is_digest(digest)
    _require(fits, op, 'the embedder\'s digest as "sha256:" and 64 hex digits', embedder.digest)
    dimension = embedder.dimension
    fits = type(dimension) is int and 1 <= dimension <= MAX_DIMENSION
    _require(fits, op, f"the embedder's dimension from 1 to {MAX_DIMENSION}", dimension)


def _check_entries(op: str, entries: tuple[Entry, ...]) -> None:
    _require(len(entries) < MAX_ENTRIES, op, f"fewer than {MAX_ENTRIES} entries", len(entries))
    for entry in entries:
        _require(isinstance(entry.path, str), op, "an entry's path as text", entry.path)
        fault = path_fault(entry.path)
        _require(not fault, op, f"a portable path of entry {entry.path!r}", fault)
        fits = type(entry.size) is int and 0 <= entry.size <= MAX_SIZE
        _require(fits, op, f"the size of {entry.path!r} from 0 to 2**63-1", entry.size)
        _require(is_digest(entry.sha256), op, f"64 hex digits for {entry.path!r}", entry.sha256)
    paths = [MANIFEST, *(e.path for e in entries)]
    clash = collision(paths)
    _require(not clash, op, "paths apart from each other", clash)
    _require(paths[1:] == sorted(paths[1:]), op, "entries in the order of their paths", "another")


def _parse_embedder(table: object) -> Embedder | None:
    if table is None:
        return None
    return Embedder(**_fields("[embedder]", table, {"name", "digest", "dimension"}))


def _parse_entries(tables: object) -> Iterable[Entry]:
    for table in tables if isinstance(tables, list) else [tables]:
        yield Entry(**_fields("[[entries]]", table, {"path", "size", "sha256"}))


def _fields(what: str, table: object, keys: set[str]) -> dict[str, Any]:
    if not isinstance(table, dict) or table.keys() != keys:
        expected = f"{', '.join(sorted(keys))} in {what}"
        raise PackageError("manifest", expected, repr(table)[:120])
    return table
