"""What the first bytes of a file say it is, for errors that name what was found instead."""

from __future__ import annotations

_MAGICS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself (run `git lfs pull`)"),
    (b"GGUF", "a GGUF file"),
    (b"\x7fELF", "a Linux executable"),
    (b"MZ", "a Windows executable"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"%PDF-", "a PDF document"),
    (b"tjgg", "a GGML file of a kind older than GGUF"),
    (b"fmgg", "a GGML file of a kind older than GGUF"),
    (b"lmgg", "a GGML file of a kind older than GGUF"),
)

HEAD = 512  # bytes that `describe` wants to see


def describe(head: bytes, size: int) -> str:
    """What a file of `size` bytes that begins with `head` is: a phrase for an error's `got`."""
    if size == 0:
        return "an empty file"
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if head.startswith(b"PK\x03\x04"):
        return _describe_zip(head)
    if head[257:262] == b"ustar":
        return "a tar archive"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle (an old PyTorch checkpoint?)"
    if looks_like_safetensors(head):
        return "a safetensors file"
    return _describe_text(head) or _describe_other(head, size)


def looks_like_safetensors(head: bytes) -> bool:
    """Whether a length and the `{` of a safetensors header stand at the start."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32


def _describe_zip(head: bytes) -> str:
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if name == b"manifest.toml":
        return "a .candle package"
    if name.endswith((b"/data.pkl", b"/.format_version", b"/.data/serialization_id")):
        return "a PyTorch checkpoint (a ZIP archive)"
    return "a ZIP archive"


def _describe_text(head: bytes) -> str:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page (a download that failed?)"
    if text.startswith(b"<?xml") or text.startswith(b"<error"):
        return "an XML answer (a download that failed?)"
    if text.startswith((b'{"', b"[{", b'["', b"{}")):
        return "JSON text"
    return ""


def _describe_other(head: bytes, size: int) -> str:
    if not any(head):
        return "zero bytes (an interrupted download?)"
    start = head[:8]
    return f"{size} bytes that begin with {start!r}"
