"""describe: the first bytes, in words."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile

import pytest

from candle.formats.sniff import describe


def _zip(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"x")
    return buffer.getvalue()


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"\n  <html lang=en>", "HTML page"),
        (b"<?xml version='1.0'?><Error>", "XML answer"),
        (b'{"error": "Repository not found"}', "JSON text"),
        (b"GGUF\x03\0\0\0", "GGUF file"),
        (b"tjgg\x03\0\0\0", "older than GGUF"),
        (_zip("manifest.toml"), ".candle package"),
        (_zip("archive/data.pkl"), "PyTorch checkpoint"),
        (_zip("other"), "ZIP archive"),
        (_tar(), "tar archive"),
        (pickle.dumps({"a": 1}), "Python pickle"),
        (struct.pack("<Q", 2) + b"{}", "safetensors file"),
        (b"\0" * 600, "interrupted download"),
        (b"SQLite format 3\0", "SQLite"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x7fELF\x02", "executable"),
        (b"abcdefghij", "begin with b'abcdefgh'"),
    ],
)
def test_what_a_file_is_in_words(data: bytes, says: str) -> None:
    """safetensors#414, #668: say what was found instead."""
    assert says in describe(data[:512], len(data))
