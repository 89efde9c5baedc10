"""Malformed `.candle` files, each named after what it tries.

The archives are laid out here by hand, not by the code under test: fields of the two headers may
say different things.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from candle.errors import PackageError
from candle.package.reader import PackageReader

REGULAR, LINK = 0o100644 << 16, 0o120777 << 16


class Part(NamedTuple):
    """One entry; `local` and `central` replace fields of one header alone."""

    path: str | bytes
    data: bytes = b""
    local: Mapping[str, Any] = MappingProxyType({})
    central: Mapping[str, Any] = MappingProxyType({})
    shift: int = 0  # bytes that the data stands off a multiple of 64
    before: bytes = b""  # stray bytes in front of the local header


def header(part: Part, changes: Mapping[str, Any]) -> dict[str, Any]:
    name = part.path.encode() if isinstance(part.path, str) else part.path
    size = len(part.data)
    fields = {
        "needed": 10,
        "flags": 0,
        "method": 0,
        "time": 0,
        "date": 0x21,
        "crc": zlib.crc32(part.data),
        "packed": size,
        "size": size,
        "name": name,
        "extra": b"",
        "comment": b"",
        "mode": REGULAR,
        "start": -1,
        "made": 3 << 8 | 10,
    }
    return {**fields, **changes}


def local(part: Part, at: int) -> bytes:
    h = header(part, part.local)
    extra = h["extra"]
    if not extra:
        padding = (part.shift - (at + 30 + len(h["name"]) + 6)) % 64
        extra = struct.pack("<3H", 0xD935, 2 + padding, 64) + bytes(padding)
    head = struct.pack(
        "<4s5H3I2H",
        b"PK\3\4",
        h["needed"],
        h["flags"],
        h["method"],
        h["time"],
        h["date"],
        h["crc"],
        h["packed"],
        h["size"],
        len(h["name"]),
        len(extra),
    )
    return head + h["name"] + extra


def central(part: Part, at: int) -> bytes:
    h = header(part, part.central)
    start = at if h["start"] < 0 else h["start"]
    head = struct.pack(
        "<4s6H3I5H2I",
        b"PK\1\2",
        h["made"],
        h["needed"],
        h["flags"],
        h["method"],
        h["time"],
        h["date"],
        h["crc"],
        h["packed"],
        h["size"],
        len(h["name"]),
        len(h["extra"]),
        len(h["comment"]),
        0,
        0,
        h["mode"],
        start,
    )
    return head + h["name"] + h["extra"] + h["comment"]


def archive(
    parts: list[Part], end: dict[str, int] | None = None, gap: bytes = b"", tail: bytes = b""
) -> bytes:
    """The parts, `gap`, the directory, an end record with fields replaced, and `tail`."""
    body, directory = b"", b""
    for part in parts:
        body += part.before
        directory += central(part, len(body))
        body += local(part, len(body)) + part.data
    body += gap
    fields = {
        "disk": 0,
        "first": 0,
        "here": len(parts),
        "count": len(parts),
        "size": len(directory),
        "start": len(body),
        "comment": 0,
        **(end or {}),
    }
    return body + directory + struct.pack("<4s4H2IH", b"PK\5\6", *fields.values()) + tail


HEAD = 'format = 1\nname = "m"\nversion = "1.0"\nkind = "encoder"\n'


def manifest(*parts: Part, head: str = HEAD) -> Part:
    """The manifest of the parts, as their data and paths say."""
    text = head
    for part in parts:
        digest = sha256(part.data).hexdigest()
        path = part.path if isinstance(part.path, str) else part.path.decode("latin-1")
        text += f"[[entries]]\npath = {json.dumps(path)}\n"
        text += f'size = {len(part.data)}\nsha256 = "{digest}"\n'
    return Part("manifest.toml", text.encode())


def package(*parts: Part, head: str = HEAD, **options: Any) -> bytes:
    return archive([manifest(*parts, head=head), *parts], **options)


def with_toml(text: str | bytes) -> bytes:
    return archive([Part("manifest.toml", text.encode() if isinstance(text, str) else text)])


def a_deflated_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("manifest.toml", HEAD * 50)
    return buffer.getvalue()


def a_streamed_zip() -> bytes:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as z:
        z.writestr("manifest.toml", HEAD)
    return pipe.getvalue()


A = Part("a.bin", b"aaaa")
B = Part("b.bin", b"bbbb")
GOOD = package(A, B)
HUGE = {"size": 1 << 20, "packed": 1 << 20}
ZIP64_MAX = struct.pack("<2H2Q", 1, 16, 2**64 - 1, 2**64 - 1)
ZIP64 = struct.pack("<2H2Q", 1, 16, 4, 4)


def entry(path: object, size: object = 0, digest: str = "0" * 64) -> bytes:
    lines = f"path = {json.dumps(path)}\nsize = {size}\nsha256 = {json.dumps(digest)}\n"
    return with_toml(HEAD + "[[entries]]\n" + lines)


STRUCTURE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "an empty file"),
    "gguf_instead": (b"GGUF" + bytes(60), "a GGUF file"),
    "html_instead": (b"<html>404</html>" + bytes(60), "an HTML page"),
    "lfs_pointer_instead": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "empty_archive": (b"PK\5\6" + bytes(18), "a .candle package, got"),
    "magic_alone": (b"PK\3\4", "the file is cut off"),
    "cut_by_one_byte": (GOOD[:-1], "the end record of an archive"),
    "cut_in_half": (GOOD[: len(GOOD) // 2], "the end record of an archive, got none"),
    "head_is_cut_off": (GOOD[64:], "a .candle package"),
    "one_byte_behind": (GOOD + b"x", "nothing behind the end record, got 1 bytes"),
    "bytes_in_front": (b"#!/bin/sh\n" + GOOD, "a .candle package"),
    "archive_comment": (
        package(A, end={"comment": 3}, tail=b"abc"),
        "nothing behind the end record",
    ),
    "archive_comment_hides_an_end": (
        package(A, end={"comment": 22}, tail=b"PK\5\6" + bytes(18)),
        "1 to 10000 entries, got 0",
    ),
    "two_end_records": (GOOD + GOOD[-22:], "a directory that ends at"),
    "two_archives": (GOOD + GOOD, "a directory that ends at"),
    "of_two_disks": (package(A, end={"disk": 1}), "one archive"),
    "counts_disagree": (package(A, end={"here": 1}), "one archive, got a part of several"),
    "count_zero": (package(A, end={"here": 0, "count": 0}), "1 to 10000 entries, got 0"),
    "count_65535": (package(A, end={"here": 65535, "count": 65535}), "1 to 10000 entries"),
    "count_one_short": (package(A, end={"here": 1, "count": 1}), "a directory of"),
    "count_one_more": (package(A, end={"here": 3, "count": 3}), "a whole directory record"),
    "directory_past_the_end": (package(A, end={"start": 1 << 30}), "a directory that ends at"),
    "directory_too_large": (package(A, end={"size": 1 << 30}), "a directory that ends at"),
    "directory_elsewhere": (package(A, end={"start": 0}), "a directory that ends at"),
    "zip64_without_its_records": (package(A, end={"start": 0xFFFFFFFF}), "zip64 end records"),
    "gap_before_the_directory": (
        package(A, gap=b"x" * 64),
        "the directory right after the entries",
    ),
    "gap_between_entries": (package(A, B._replace(before=bytes(64))), "it follows a gap"),
    "overlapping_entries": (
        package(A, B._replace(central={"start": 0})),
        "it overlaps the one before",
    ),
    "entry_past_the_end": (
        package(A._replace(local=HUGE, central=HUGE)),
        "1048576 bytes of entry 'a.bin'",
    ),
    "local_header_past_the_end": (
        package(A)[: -22 - 51] + package(A)[-22:],
        "a directory that ends",
    ),
    "start_2_32": (package(A._replace(central={"start": 0xFFFFFFFE})), "it follows a gap"),
    "zip64_size_2_64": (
        package(A._replace(central={"size": 2**32 - 1, "packed": 2**32 - 1, "extra": ZIP64_MAX})),
        "version needed other than the directory's",
    ),
    "zip64_field_missing": (
        package(A._replace(central={"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF})),
        "just a zip64 field of entry 'a.bin', got 0 bytes",
    ),
    "zip64_field_too_long": (
        package(A._replace(central={"size": 0xFFFFFFFF, "extra": ZIP64})),
        "just a zip64 field",
    ),
    "zip64_field_not_needed": (package(A._replace(central={"extra": ZIP64})), "no extra field"),
    "zip64_field_for_a_small_size": (
        package(A._replace(central={"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": ZIP64})),
        "a directory in its canonical form",
    ),
    "unicode_path_field": (
        package(A._replace(central={"extra": b"up\x09\0\1" + bytes(4) + b"evil"})),
        "no extra field",
    ),
    "deflated": (a_deflated_zip(), "entry 'manifest.toml' stored, got compression method 8"),
    "streamed": (a_streamed_zip(), "data descriptor"),
    "method_in_one_header": (
        package(A._replace(local={"method": 8})),
        "compression method other than",
    ),
    "encrypted": (package(A._replace(central={"flags": 1})), "'a.bin' in the clear"),
    "strongly_encrypted": (package(A._replace(central={"flags": 0x41})), "'a.bin' in the clear"),
    "data_descriptor": (package(A._replace(central={"flags": 8})), "data descriptor"),
    "utf8_flag": (package(A._replace(central={"flags": 0x800})), "no flags on entry 'a.bin'"),
    "flags_in_one_header": (package(A._replace(local={"flags": 1})), "flags other than"),
    "sizes_differ": (package(A._replace(central={"packed": 3})), "equal sizes of stored"),
    "local_size_differs": (package(A._replace(local={"size": 3})), "sizes other than"),
    "local_checksum_differs": (package(A._replace(local={"crc": 1})), "checksum other than"),
    "local_name_differs": (package(A._replace(local={"name": b"x.bin"})), "a name other than"),
    "local_name_is_longer": (
        package(A._replace(local={"name": b"aa.bin"})),
        "lengths of name and extra field other than",
    ),
    "local_signature_differs": (
        package(B, gap=b"").replace(b"PK\3\4", b"PK\3\5").replace(b"PK\3\5", b"PK\3\4", 1),
        "signature other than",
    ),
    "unaligned": (package(A._replace(shift=1)), "lengths of name and extra field other than"),
    "no_alignment_field": (
        package(A._replace(local={"extra": b"\0" * 4})),
        "lengths of name and extra field other than",
    ),
    "alignment_field_hides_bytes": (
        GOOD.replace(struct.pack("<H", 64) + bytes(8), struct.pack("<H", 64) + b"hidden!!", 1),
        "another alignment field",
    ),
    "entry_comment": (
        package(A._replace(central={"comment": b"hi"})),
        "no comment on entry 'a.bin'",
    ),
    "time_in_both": (
        package(A._replace(local={"time": 1}, central={"time": 1})),
        "time other than",
    ),
    "time_in_the_directory": (
        package(A._replace(central={"time": 1})),
        "a directory in its canonical form",
    ),
    "made_by_dos": (package(A._replace(central={"made": 10})), "a directory in its canonical form"),
    "symbolic_link": (
        package(A._replace(central={"mode": LINK})),
        "'a.bin' as a regular file, got a symbolic link",
    ),
    "executable": (package(A._replace(central={"mode": 0o100755 << 16})), "as a regular file"),
    "manifest_is_second": (
        archive([A, manifest(A)]),
        "manifest.toml as the first entry, got a.bin",
    ),
    "no_manifest": (archive([A]), "manifest.toml as the first entry"),
    "manifest_twice": (archive([manifest(), manifest()]), "paths apart from each other"),
    "name_twice": (archive([manifest(A), A, A]), "'a.bin' and 'a.bin' (twice)"),
    "names_differ_in_case": (
        package(A, Part("A.BIN", b"x")),
        "'a.bin' and 'A.BIN' (differs only in case)",
    ),
    "file_and_folder": (package(Part("a"), Part("a/b")), "'a' is a file, and the folder of 'a/b'"),
    "manifest_damaged": (GOOD.replace(b'name = "m"', b'name = "n"'), "the manifest's checksum"),
    "manifest_of_5_mb": (with_toml("#" * 5_000_000), "a manifest of at most 4194304 bytes"),
    "entry_not_in_the_manifest": (
        archive([manifest(A), A, B]),
        "'b.bin' in manifest and archive, got the archive alone",
    ),
    "entry_not_in_the_archive": (
        archive([manifest(A, B), A]),
        "'b.bin' in manifest and archive, got the manifest alone",
    ),
    "manifest_states_another_size": (
        archive([manifest(A._replace(data=b"aaaaa")), A]),
        "5 bytes of entry 'a.bin', as the manifest says, got 4",
    ),
}

PATHS = {
    "parent": ("../x", "'..' as a part"),
    "parent_inside": ("a/../../x", "'..' as a part"),
    "dot": ("./x", "'.' as a part"),
    "double_slash": ("a//b", "'' as a part"),
    "absolute": ("/etc/passwd", "an absolute path"),
    "folder": ("a/", "a folder entry"),
    "backslash": ("..\\x", "a backslash"),
    "drive": ("C:x", "a drive letter"),
    "stream": ("ab:c", "characters other than"),
    "nul": ("a\0.bin", "a NUL character"),
    "empty": ("", "an empty path"),
    "newline": ("a\nb", "characters other than"),
    "space": ("a b", "characters other than"),
    "not_ascii": ("é", "characters other than"),
    "hidden": (".ssh/x", "characters other than"),
    "option": ("-rf", "characters other than"),
    "home": ("~/x", "characters other than"),
    "dot_at_the_end": ("a./b", "a dot at the end"),
    "device": ("con", "a device name on Windows"),
    "device_with_suffix": ("index/NUL.txt", "a device name on Windows"),
    "device_com1": ("COM1", "a device name on Windows"),
    "long": ("a" * 201, "more than 200 characters"),
    "deep": ("/".join("a" * 17), "more than 16 folders"),
}
for _name, (_path, _says) in PATHS.items():
    STRUCTURE[f"path_{_name}"] = (archive([manifest(), Part(_path)]), _says)
STRUCTURE["path_not_utf8"] = (archive([manifest(), Part(b"\xff")]), "paths in ASCII")

LINES = "a manifest in plain lines of TOML"
MANIFESTS: dict[str, tuple[bytes, str]] = {
    "not_utf8": (with_toml(b"\xff"), LINES),
    "not_toml": (with_toml("= = ="), LINES),
    "toml_key_twice": (with_toml(HEAD + 'name = "x"\n'), LINES),
    "toml_nested_arrays": (with_toml("a = " + "[\n" * 20_000), LINES),
    "toml_nested_arrays_in_a_line": (with_toml("a = " + "[" * 20_000), LINES),
    "toml_dotted_key": (with_toml("a" + ".a" * 100_000 + " = 1"), LINES),
    "toml_dotted_key_in_a_value": (with_toml("a = {a" + ".a" * 100_000 + " = 1}"), LINES),
    "toml_quoted_key": (with_toml('"a"."a" = 1'), LINES),
    "toml_dotted_table": (with_toml("[a.a]"), LINES),
    "toml_open_string": (with_toml('a = """\n'), LINES),
    "toml_long_number": (with_toml("a = " + "9" * 5000), LINES),
    "toml_huge_exponent": (with_toml(HEAD + "license = 1e999999999\n"), "license as a printable"),
    "empty": (with_toml(""), "format = 1, got 'none'"),
    "format_2": (with_toml(HEAD.replace("format = 1", "format = 2")), "a newer Candle wrote it"),
    "format_of_text": (with_toml(HEAD.replace("format = 1", 'format = "1"')), "format = 1"),
    "format_true": (with_toml(HEAD.replace("format = 1", "format = true")), "format = 1"),
    "format_float": (with_toml(HEAD.replace("format = 1", "format = 1.0")), "format = 1"),
    "key_unknown": (with_toml(HEAD + 'script = "x"\n'), "known keys, got 'script'"),
    "no_name": (with_toml(HEAD.replace('name = "m"\n', "")), "name in the manifest"),
    "entries_a_table": (with_toml(HEAD + "[entries]\n"), "[[entries]]"),
    "entries_of_text": (with_toml(HEAD + 'entries = ["a"]\n'), "[[entries]], got 'a'"),
    "entry_with_more": (
        with_toml(HEAD + '[[entries]]\npath = "a"\nsize = 0\nsha256 = ""\nmode = 1\n'),
        "path, sha256, size in [[entries]]",
    ),
    "entry_size_negative": (entry("a", -1), "the size of 'a' from 0"),
    "entry_size_true": (entry("a", "true"), "the size of 'a' from 0"),
    "entry_size_float": (entry("a", "1.0"), "the size of 'a' from 0"),
    "entry_size_2_63": (entry("a", 1 << 63), "the size of 'a' from 0"),
    "entry_path_a_number": (entry(1), "an entry's path as text"),
    "entry_path_parent": (entry("../a"), "'..' as a part"),
    "entry_path_a_newline": (entry("a\n"), "characters other than"),
    "entry_is_the_manifest": (entry("manifest.toml"), "(twice)"),
    "digest_a_path": (entry("a", 0, "../../../etc/passwd"), "64 hex digits for 'a', got '../.."),
    "digest_of_63": (entry("a", 0, "0" * 63), "64 hex digits for 'a'"),
    "digest_upper_case": (entry("a", 0, "A" * 64), "64 hex digits for 'a'"),
    "digest_with_prefix": (entry("a", 0, "sha256:" + "0" * 64), "64 hex digits for 'a'"),
    "digest_with_newline": (entry("a", 0, "0" * 64 + "\n"), "64 hex digits for 'a'"),
    "entries_out_of_order": (package(B, A), "in the order of their paths"),
}


def _add(key: str, text: str, says: str) -> None:
    MANIFESTS[key] = (with_toml(text), says)


for _name in (
    "../x",
    "",
    "A",
    "a/b",
    "a b",
    ".a",
    "a.",
    "é",
    "a" * 65,
    "con",
    "nul.x",
    "a\\b",
    "a\n",
):
    _add(f"name_{_name[:8]!r}", HEAD.replace('"m"', json.dumps(_name)), "a name of 1 to 64 of")
for _name in ("", "v1.0", "1.0/..", "..", "1.0 ", "01.0", "latest", "1!1.0", "1" * 65, "1.0-1"):
    _says = "a version in normal form"
    _add(f"version_{_name[:8]!r}", HEAD.replace('"1.0"', json.dumps(_name)), _says)

_REQUIREMENTS = HEAD + "[requirements]\n"
_BASE = HEAD.replace("encoder", "knowledge-base")
_HASH = '"sha256:' + "0" * 64 + '"'


def _embedder(name: str = '"e"', digest: str = _HASH, dimension: str = "1") -> str:
    return f"{_BASE}[embedder]\nname = {name}\ndigest = {digest}\ndimension = {dimension}\n"


_add("name_a_number", HEAD.replace('"m"', "1"), "a name of 1 to 64")
_add("version_a_number", HEAD.replace('"1.0"', "1.0"), "a version in normal form")
_add("kind_with_space", HEAD.replace('"encoder"', '"my encoder"'), "a kind such as")
_add("license_a_list", HEAD + "license = []\n", "license as a printable line")
_add("description_of_escapes", HEAD + 'description = "\\u001b[2J"\n', "description as a printable")
_add("description_long", HEAD + f'description = "{"x" * 1001}"\n', "at most 1000 characters")
_add("embedder_missing", _BASE, "[embedder] in a knowledge-base")
_add("embedder_not_asked", _embedder().replace(_BASE, HEAD), "no other kind")
_add("embedder_digest_a_path", _embedder(digest='"sha256:../x"'), "64 hex digits")
_add("embedder_digest_md5", _embedder(digest=_HASH.replace("sha256", "md5")), "64 hex digits")
_add("embedder_dimension_0", _embedder(dimension="0"), "dimension from 1 to 1048576")
_add("embedder_dimension_text", _embedder(dimension='"1"'), "dimension from 1 to 1048576")
_add("embedder_name_a_list", _embedder(name="[]"), "the embedder's name as a printable")
_add("embedder_with_more", _embedder() + "x = 1\n", "digest, dimension, name in [embedder]")
_add("requirements_a_list", HEAD + "requirements = []\n", "a table [requirements]")
_add("requirement_unknown", _REQUIREMENTS + 'rocm = ">=5"\n', "known requirements, got rocm")
_add("requirement_not_pep440", _REQUIREMENTS + 'cuda = "new"\n', "cuda as a version specifier")
_add("requirement_a_number", _REQUIREMENTS + "cuda = 11\n", "cuda as a version specifier")
_add("memory_of_gigabytes", _REQUIREMENTS + 'memory = "2GB"\n', "memory such as")
_add("features_a_text", _REQUIREMENTS + 'cpu_features = "avx2"\n', "cpu_features as a list")
_add("features_with_space", _REQUIREMENTS + 'cpu_features = ["a b"]\n', "cpu_features as names")

ATTACKS = {**STRUCTURE, **{f"manifest_{name}": attack for name, attack in MANIFESTS.items()}}


@pytest.mark.parametrize("name", ATTACKS)
def test_refused(name: str, tmp_path: Path, watched: Callable[..., Any]) -> None:
    """ollama#17178 and others: one clear error each, before anything is used."""
    content, says = ATTACKS[name]
    path = tmp_path / "attack.candle"
    path.write_bytes(content)
    with pytest.raises(PackageError) as caught:
        watched(PackageReader.open, path)
    assert says in str(caught.value), str(caught.value)
    assert str(path) in str(caught.value)


def test_the_files_that_the_attacks_change_are_good(tmp_path: Path) -> None:
    """The layout by hand, here, is the writer's: otherwise the attacks would prove nothing."""
    path = tmp_path / "good.candle"
    for content in (GOOD, package(A), package()):
        path.write_bytes(content)
        with PackageReader.open(path) as reader:
            reader.verify()


def test_a_damaged_entry_is_found_by_its_hash(tmp_path: Path) -> None:
    """fastembed#88: one flipped byte is an error, not a warning."""
    path = tmp_path / "damaged.candle"
    path.write_bytes(GOOD.replace(b"aaaa", b"aaab"))
    with PackageReader.open(path) as reader:
        with pytest.raises(PackageError, match=r"SHA-256 .* of entry 'a\.bin'"):
            reader.verify()
        with pytest.raises(PackageError, match=r"entry 'a\.bin'"):
            reader.extract("a.bin", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["damaged.candle"]


def test_a_wrong_checksum_in_both_headers_is_found(tmp_path: Path) -> None:
    path = tmp_path / "damaged.candle"
    path.write_bytes(package(A._replace(local={"crc": 1}, central={"crc": 1})))
    with PackageReader.open(path) as reader, pytest.raises(PackageError, match="checksum of entry"):
        reader.verify()
