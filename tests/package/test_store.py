"""The store: installing, sharing, removing, and what interruptions leave."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path

import pytest

from candle.errors import LockedError, NameNotFoundError, PackageError, StoreError
from candle.package import store as store_module
from candle.package.lock import FileLock
from candle.package.manifest import Manifest
from candle.package.store import Store, default_home, layer_path
from candle.package.writer import write_package

SHARED = {"tokenizer.json": b"{}" * 100}


def make(
    folder: Path, name: str = "m", version: str = "1.0", **entries: bytes | Mapping[str, bytes]
) -> Path:
    path = folder / f"{name}-{version}-{len(list(folder.iterdir()))}.candle"
    contents = {key.replace("__", "/"): value for key, value in entries.items()}
    write_package(path, Manifest(name, version, "encoder"), {**SHARED, **contents})
    return path


def files(home: Path) -> list[str]:
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home, wait=30)


def test_an_installed_package_is_found_with_its_files(store: Store, tmp_path: Path) -> None:
    done = store.install(make(tmp_path, weights=b"12345"))
    assert (done.name, done.version, done.was_present) == ("m", "1.0", False)
    found = store.get("m")
    assert found == done
    assert found.path("weights").read_bytes() == b"12345"
    assert found.size == 205
    assert "weights" in found and "other" not in found
    assert [p.name for p in store.list()] == ["m"]
    assert store.verify("m") == found
    with pytest.raises(StoreError, match=r"an entry named 'other', got tokenizer\.json, weights"):
        found.path("other")


def test_nothing_is_made_before_the_first_installation(home: Path) -> None:
    store = Store(home)
    assert list(store.list()) == []
    with pytest.raises(NameNotFoundError, match="nothing is installed"):
        store.get("m")
    assert not home.exists()


def test_the_layout_is_the_designs(store: Store, home: Path, tmp_path: Path) -> None:
    installed = store.install(make(tmp_path))
    digest = installed.manifest.entries[0].sha256
    assert files(home) == sorted(
        [f"layers/sha256/{digest[:2]}/{digest}", "lock", "packages/m/1.0/manifest.toml"]
    )


def test_the_same_contents_again_change_nothing(store: Store, tmp_path: Path) -> None:
    path = make(tmp_path, weights=b"1")
    first = store.install(path)
    before = first.path("weights").stat().st_mtime_ns
    again = store.install(path)
    assert again.was_present and again.digest == first.digest
    assert again.path("weights").stat().st_mtime_ns == before


@pytest.mark.parametrize("replace", [False, True])
def test_a_damaged_file_of_what_is_here_is_refused_too(
    store: Store, tmp_path: Path, replace: bool
) -> None:
    """Its manifest is that of the installed package; its bytes are not."""
    path = make(tmp_path, weights=b"wwwwwwwwwwwwwwww")
    store.install(path)
    path.write_bytes(path.read_bytes().replace(b"wwwwwwwwwwwwwwww", b"wwwwwwwwXwwwwwww"))
    with pytest.raises(PackageError):
        store.install(path, replace=replace)
    assert store.get("m").path("weights").read_bytes() == b"wwwwwwwwwwwwwwww"


def test_other_contents_under_the_same_version_need_consent(store: Store, tmp_path: Path) -> None:
    store.install(make(tmp_path, weights=b"1"))
    other = make(tmp_path, weights=b"2")
    with pytest.raises(StoreError, match="other contents under the same name and version"):
        store.install(other)
    assert store.get("m").path("weights").read_bytes() == b"1"
    assert not store.install(other, replace=True).was_present
    assert store.get("m").path("weights").read_bytes() == b"2"


def test_another_name_can_be_given(store: Store, tmp_path: Path) -> None:
    path = make(tmp_path)
    store.install(path)
    other = store.install(path, as_name="mine")
    assert (other.name, other.manifest.name) == ("mine", "m")
    assert [p.name for p in store.list()] == ["m", "mine"]
    for bad in ("../x", "", "A", "con"):
        with pytest.raises(PackageError, match="a name of"):
            store.install(path, as_name=bad)


def test_versions_stand_side_by_side_and_the_latest_is_the_default(
    store: Store, tmp_path: Path
) -> None:
    for version in ("1.9", "1.10", "1.10rc1"):
        store.install(make(tmp_path, version=version, weights=version.encode()))
    assert store.get("m").version == "1.10"
    assert store.get("m", "1.9").path("weights").read_bytes() == b"1.9"
    assert [p.version for p in store.list()] == ["1.9", "1.10rc1", "1.10"]
    with pytest.raises(NameNotFoundError, match=r"version 2\.0, got 1\.9, 1\.10rc1, 1\.10"):
        store.get("m", "2.0")


def test_layers_are_shared_and_kept_until_no_package_names_them(
    store: Store, home: Path, tmp_path: Path
) -> None:
    store.install(make(tmp_path, "a", weights=b"aaa"))
    store.install(make(tmp_path, "b", weights=b"bbb"))
    assert len(list((home / "layers").rglob("*/*/*"))) == 3
    assert store.gc() == 0
    assert store.remove("a") == ["1.0"]
    assert store.gc() == 3
    assert store.verify("b").path("tokenizer.json").exists()
    store.remove("b")
    assert store.gc() == 203
    assert files(home) == ["lock"]
    assert list((home / "packages").iterdir()) == []


def test_remove_takes_one_version_or_all(store: Store, tmp_path: Path) -> None:
    for version in ("1.0", "2.0", "3.0"):
        store.install(make(tmp_path, version=version))
    assert store.remove("m", "2.0") == ["2.0"]
    with pytest.raises(NameNotFoundError):
        store.remove("m", "2.0")
    assert store.remove("m") == ["1.0", "3.0"]
    with pytest.raises(NameNotFoundError):
        store.remove("m")


def test_an_absent_name_lists_its_neighbours(store: Store, tmp_path: Path) -> None:
    store.install(make(tmp_path, "wiki_en"))
    with pytest.raises(NameNotFoundError, match="installed are: wiki_en"):
        store.get("wiki_e")


@pytest.mark.parametrize("bad", ["../m", "m/../m", "M", "", "/etc"])
def test_a_name_cannot_leave_the_store(store: Store, tmp_path: Path, bad: str) -> None:
    """ollama#17178."""
    store.install(make(tmp_path))
    for call in (store.get, store.remove, store.verify):
        with pytest.raises(PackageError, match="a name of"):
            call(bad)
    for call in (store.get, store.remove, store.verify):
        with pytest.raises(NameNotFoundError):
            call("m", "../1.0")


@pytest.mark.parametrize(
    "digest", ["../../etc/x", "sha256:" + "0" * 64, "0" * 63, "A" * 64, "0" * 64 + "\n", ""]
)
def test_only_64_hex_digits_become_a_path(home: Path, digest: str) -> None:
    """ollama#17178: sha256:../../etc/x."""
    with pytest.raises(StoreError, match="64 hex digits"):
        layer_path(home, digest)


def test_a_damaged_package_installs_nothing(store: Store, home: Path, tmp_path: Path) -> None:
    """fastembed#88: one byte flipped, found before anything is visible."""
    path = make(tmp_path, a=b"first", weights=b"needle")
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))
    with pytest.raises(PackageError, match="SHA-256"):
        store.install(path)
    assert list(store.list()) == []
    store.gc()
    assert files(home) == ["lock"]


def test_a_damaged_layer_is_found_and_repaired(store: Store, tmp_path: Path) -> None:
    path = make(tmp_path, weights=b"12345")
    layer = store.install(path).path("weights")
    layer.chmod(0o644)
    layer.write_bytes(b"1234x")
    with pytest.raises(StoreError, match="whole layers, got weights"):
        store.verify("m")
    layer.unlink()
    with pytest.raises(StoreError, match="the layer of entry 'weights'"):
        store.get("m").path("weights")
    assert not store.install(path).was_present
    store.verify("m")


def test_replacing_rewrites_a_layer_that_was_damaged(store: Store, tmp_path: Path) -> None:
    path = make(tmp_path, weights=b"12345")
    layer = store.install(path).path("weights")
    layer.chmod(0o644)
    layer.write_bytes(b"1234x")
    store.remove("m")
    store.install(path)
    store.verify("m")


def test_a_damaged_manifest_is_named_and_can_be_removed(
    store: Store, home: Path, tmp_path: Path
) -> None:
    store.install(make(tmp_path))
    (home / "packages/m/1.0/manifest.toml").write_text("garbage")
    for call in (lambda: store.get("m"), store.list, store.gc):
        with pytest.raises(StoreError, match="candle remove m"):
            call()
    assert layer_path(home, "0" * 64).parent.parent.exists()
    store.remove("m")
    assert list(store.list()) == []


def test_a_manifest_of_another_version_is_refused(store: Store, home: Path, tmp_path: Path) -> None:
    store.install(make(tmp_path))
    shutil.copytree(home / "packages/m/1.0", home / "packages/m/2.0")
    with pytest.raises(StoreError, match=r"version 2\.0, got '?1\.0"):
        store.get("m")


def test_foreign_files_in_the_store_hurt_nobody(store: Store, home: Path, tmp_path: Path) -> None:
    store.install(make(tmp_path))
    (home / "packages" / ".DS_Store").write_bytes(b"x")
    (home / "packages" / "m" / ".DS_Store").write_bytes(b"x")
    (home / "packages" / "empty").mkdir()
    for strange in ("M/1.0", "m/latest", "x/1.0-"):
        shutil.copytree(home / "packages/m/1.0", home / "packages" / strange)
    assert store.get("m").version == "1.0"
    assert [p.name for p in store.list()] == ["m"]


class Interrupted(BaseException):
    """As if the process had been killed."""


@pytest.mark.parametrize("step", range(6))
def test_an_interruption_at_any_step_leaves_nothing_visible(
    store: Store, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """fastembed#88, huggingface_hub#1396: a half installation is never trusted later."""
    path = make(tmp_path, a=b"1", b=b"2")
    real, calls = os.replace, 0

    def stop(source: str, target: str) -> None:
        nonlocal calls
        calls += 1
        if calls > step:
            raise Interrupted
        real(source, target)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(Interrupted):
        store.install(path)
    monkeypatch.undo()
    assert list(store.list()) == []
    assert not store.install(path).was_present
    store.verify("m")
    assert not any((home / "tmp").iterdir())


def test_what_an_interruption_left_is_collected(store: Store, home: Path) -> None:
    (home / "tmp" / "old").mkdir(parents=True)
    (home / "tmp" / "old" / "layer").write_bytes(b"x" * 10)
    stray = layer_path(home, "ab" * 32)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"stray")
    (home / "packages" / "m" / "1.0").mkdir(parents=True)
    assert store.gc() == 5
    assert files(home) == ["lock"]
    assert not (home / "packages" / "m").exists()


INSTALL = """
import sys
from candle.package.store import Store
print(Store(sys.argv[1], wait=60).install(sys.argv[2]).was_present)
"""


def test_two_processes_may_install_at_once(store: Store, home: Path, tmp_path: Path) -> None:
    """tutorials#3065: two ranks start together."""
    paths = [make(tmp_path, "m", weights=bytes(3_000_000)), make(tmp_path, "n", weights=b"n")]
    commands = [[sys.executable, "-c", INSTALL, str(home), str(p)] for p in (*paths, paths[0])]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in commands]
    said = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted((said[0], said[2])) == ["False", "True"] and said[1] == "False"
    store.verify("m")
    store.verify("n")


def test_a_store_in_use_is_an_error_when_waiting_is_over(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    with FileLock(home / "lock", "it"), pytest.raises(LockedError, match=f"process {os.getpid()}"):
        Store(home, wait=0).install(make(tmp_path))


def test_a_full_disk_is_said_before_and_during(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, weights=bytes(1000))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda _: usage(1, 1, 100))
    with pytest.raises(StoreError, match=r"1200 bytes free in .*, got 100 .*CANDLE_HOME"):
        store.install(path)
    monkeypatch.undo()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("candle.formats.atomic.os.fsync", full)
    with pytest.raises(StoreError, match=r"a full disk .*CANDLE_HOME"):
        store.install(path)
    monkeypatch.undo()
    assert list(store.list()) == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user that is refused")
def test_a_read_only_home_is_said(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o555)
    with pytest.raises(StoreError, match=r"a writable .*CANDLE_HOME"):
        Store(home).install(make(tmp_path))


def test_a_refusal_of_the_system_is_said(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=r"a writable .*Read-only file system .*CANDLE_HOME"):
        store.install(make(tmp_path))


def test_a_home_that_is_a_file_is_said(home: Path, tmp_path: Path) -> None:
    home.write_bytes(b"")
    with pytest.raises(StoreError, match="a usable"):
        Store(home).install(make(tmp_path))


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_layers_are_not_writable(store: Store, tmp_path: Path) -> None:
    assert store.install(make(tmp_path)).path("tokenizer.json").stat().st_mode & 0o222 == 0


def test_progress_counts_bytes(store: Store, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    store.install(make(tmp_path, weights=b"12345"), progress=lambda *p: seen.append(p))
    assert seen == [(200, 205), (205, 205)]


def test_candle_home_is_where_the_variable_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CANDLE_HOME", str(tmp_path / "Загрузки é"))
    assert default_home() == tmp_path / "Загрузки é"
    Store().install(make(tmp_path))
    assert (tmp_path / "Загрузки é" / "packages").is_dir()
    monkeypatch.setenv("CANDLE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert default_home() == tmp_path / ".candle"
