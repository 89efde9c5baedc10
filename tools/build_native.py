"""Builds native/ into one shared library, and the cffi shim where Python's headers exist.

    python tools/build_native.py [--out DIR] [--target T] [--sanitize] [--no-shim] [--cc]

The compiler is `ziglang` from PyPI, else `$CC` or `cc`. Kernels are compiled once per ISA of the
target, every other file once. Objects are kept under build/ by the hash of what they depend on.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"

# ISA -> the compiler's flags for it. Weakest first; runtime/runtime.h has the same names.
ISAS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "scalar": ["-mcpu=x86_64", "-fno-vectorize", "-fno-slp-vectorize"],
        "avx2": ["-mcpu=x86_64_v3"],
        "avx512vnni": ["-mcpu=x86_64_v4+avx512vnni"],
    },
    "aarch64": {
        "scalar": ["-mcpu=generic", "-fno-vectorize", "-fno-slp-vectorize"],
        "neon": ["-mcpu=generic"],
    },
}
GCC_FLAGS = {  # the same for a plain cc
    "scalar": ["-fno-tree-vectorize"],
    "avx2": ["-march=x86-64-v3"],
    "avx512vnni": ["-march=x86-64-v4", "-mavx512vnni"],
    "neon": [],
}
COMMON = [
    "-std=c11",
    "-g0",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fomit-frame-pointer",
    "-Wall",
    "-Wextra",
]
RELEASE = ["-O3", "-fno-sanitize=undefined"]
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


class BuildError(RuntimeError):
    """The compiler refused; the text is its own output."""


def version() -> str:
    """The project's version, from its one place."""
    text = (ROOT / "src/candle/_version.py").read_text(encoding="utf-8")
    return text.split('"')[-2]


def find_compiler(force_cc: bool = False) -> list[str]:
    """The compiler's command: zig by its Python package, else $CC, else cc."""
    if not force_cc and importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    found = next((c for c in ("clang", "cc", "gcc") if shutil.which(c)), None)
    if found is None:
        raise BuildError("no compiler: pip install ziglang, or set CC")
    return [found]


def default_target() -> str:
    """A zig target of this machine, with the C library pinned low."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if sys.platform == "darwin":
        return f"{machine}-macos.11.0"
    if sys.platform == "win32":
        return f"{machine}-windows-gnu"
    musl = "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "")
    return f"{machine}-linux-musl" if musl else f"{machine}-linux-gnu.2.17"


def library_name(target: str) -> str:
    """File name of the shared library on the target."""
    if "windows" in target:
        return "candle.dll"
    return "libcandle.dylib" if "macos" in target else "libcandle.so"


def python_headers() -> Path | None:
    """The folder of Python.h, if this Python has its headers."""
    folder = Path(sysconfig.get_path("include"))
    return folder if (folder / "Python.h").exists() else None


def run(command: list[str]) -> str:
    """Runs one command; raises BuildError with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def cdef_text(compiler: list[str]) -> str:
    """The public header as cffi reads it: preprocessed, nothing but declarations."""
    header = str(NATIVE / "include/candle.h")
    text = run([*compiler, "-E", "-P", "-DCDL_CDEF", "-x", "c", header])
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


class Build:
    """One build: a compiler, a target, flags, and a folder of objects."""

    def __init__(self, target: str, sanitize: bool = False, force_cc: bool = False) -> None:
        self.target = target
        self.compiler = find_compiler(force_cc)
        self.is_zig = "ziglang" in self.compiler
        self.flags = [*COMMON, *(SANITIZE if sanitize else RELEASE)]
        self.sanitize = sanitize
        if not self.is_zig:
            self.flags = [f for f in self.flags if f != "-fno-sanitize=undefined"]
            if "clang" not in self.compiler[0]:
                self.flags.append("-fno-tree-slp-vectorize")
        self.arch = target.split("-", 1)[0]
        self.objects = ROOT / "build" / (target + ("-san" if sanitize else ""))
        self.objects.mkdir(parents=True, exist_ok=True)
        self.headers = self._hash_headers()

    def target_flags(self) -> list[str]:
        return ["-target", self.target] if self.is_zig else []

    def isas(self) -> dict[str, list[str]]:
        """ISA -> flags for this target; a plain scalar build where the CPU is not known."""
        isas = ISAS.get(self.arch, {"scalar": []})
        if self.is_zig:
            return isas
        return {isa: GCC_FLAGS[isa] for isa in isas}

    def jobs(self) -> list[tuple[Path, str | None, list[str]]]:
        """(source, ISA or None, extra flags) of every object."""
        kernels = sorted((NATIVE / "kernels").glob("*.c"))
        once = [p for d in ("base", "runtime", "port") for p in sorted((NATIVE / d).glob("*.c"))]
        base = next(iter(self.isas().values()))
        listed: list[tuple[Path, str | None, list[str]]] = []
        for isa, flags in self.isas().items():
            listed += [(p, isa, [*flags, f"-DCDL_ISA={isa}"]) for p in kernels]
        define = f'-DCDL_VERSION="{version()}"'
        return listed + [(p, None, [*base, define]) for p in once]

    def compile(self, job: tuple[Path, str | None, list[str]]) -> Path:
        """One source to one object, unless the same was compiled before."""
        source, isa, extra = job
        command = [*self.compiler, *self.target_flags(), *self.flags, *extra]
        key = hashlib.sha256(source.read_bytes() + self.headers + repr(command).encode())
        name = f"{source.parent.name}_{source.stem}{'_' + isa if isa else ''}"
        out = self.objects / f"{name}.{key.hexdigest()[:16]}.o"
        if not out.exists():
            part = out.with_suffix(f".{os.getpid()}.part.o")
            run([*command, "-c", str(source), "-o", str(part)])
            for old in self.objects.glob(f"{name}.????????????????.o"):
                old.unlink(missing_ok=True)
            part.replace(out)
        return out

    def compile_all(self) -> list[Path]:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(self.compile, self.jobs()))

    def link(self, objects: list[Path], out: Path) -> Path:
        """Objects to the shared library, in place at once."""
        part = out.with_name(f".{os.getpid()}.{out.name}")
        strip = [] if self.sanitize else ["-s"]
        extra = ["-lm", "-lpthread"] if "linux" in self.target else []
        if "linux" in self.target:
            extra += ["-Wl,-soname," + out.name]
        if "macos" in self.target:
            extra += [f"-Wl,-install_name,@loader_path/{out.name}"]
        flags = [*self.target_flags(), *(SANITIZE if self.sanitize else ["-O3"]), "-shared", *strip]
        run([*self.compiler, *flags, *map(str, objects), "-o", str(part), *extra])
        part.replace(out)
        return out

    def abi_module(self, folder: Path) -> Path:
        """The out-of-line ABI-mode module: declarations only, so that no parser loads at import."""
        import cffi

        ffi = cffi.FFI()
        ffi.cdef(cdef_text(self.compiler))
        ffi.set_source("candle._native._abi", None)
        out = folder / "_abi.py"
        with contextlib.redirect_stdout(sys.stderr):
            ffi.emit_python_code(str(out))
        return out

    def shim(self, folder: Path, library: Path, include: Path) -> Path:
        """The cffi API-mode module that calls the library: limited API, one for 3.11 and up."""
        import cffi

        ffi = cffi.FFI()
        ffi.cdef(cdef_text(self.compiler))
        ffi.set_source("candle._native._shim", '#include "candle.h"\n', py_limited_api=True)
        source = self.objects / "_shim.c"
        with contextlib.redirect_stdout(sys.stderr):
            ffi.emit_c_code(str(source))
        # cffi leaves Py_LIMITED_API to the build tool
        limited = ["-DPy_LIMITED_API=0x030b0000"]
        out = folder / ("_shim.pyd" if "windows" in self.target else "_shim.abi3.so")
        part = folder / f".{os.getpid()}.{out.name}"
        flags = [*self.target_flags(), "-O2", "-g0", "-fPIC", "-w", "-shared", "-s", *limited]
        include_flags = [f"-I{NATIVE / 'include'}", f"-I{include}", "-idirafter", "/usr/include"]
        rpath = ["-Wl,-rpath,$ORIGIN"] if "linux" in self.target else []
        if "macos" in self.target:
            rpath = ["-Wl,-undefined,dynamic_lookup"]
        lib = [str(library)]
        run([*self.compiler, *flags, *include_flags, str(source), *lib, "-o", str(part), *rpath])
        part.replace(out)
        return out

    @staticmethod
    def _hash_headers() -> bytes:
        digest = hashlib.sha256()
        for path in sorted([*NATIVE.rglob("*.h"), *NATIVE.rglob("*.def")]):
            digest.update(path.read_bytes())
        return digest.digest()


def build(
    out: Path,
    target: str | None = None,
    sanitize: bool = False,
    shim: bool = True,
    cc: bool = False,
) -> list[Path]:
    """Builds into `out`; answers the files made: library, ABI module, shim if possible."""
    target = target or default_target()
    out.mkdir(parents=True, exist_ok=True)
    one = Build(target, sanitize, cc)
    library = one.link(one.compile_all(), out / library_name(target))
    made = [library, one.abi_module(out)]
    include = python_headers()
    if shim and include and target == default_target() and not sanitize and sys.platform != "win32":
        made.append(one.shim(out, library, include))
    else:
        (out / "_shim.abi3.so").unlink(missing_ok=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "src/candle/_native")
    parser.add_argument("--target", default=None)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--no-shim", action="store_true")
    parser.add_argument("--cc", action="store_true", help="use $CC or cc although zig is here")
    a = parser.parse_args()
    try:
        for path in build(a.out, a.target, a.sanitize, not a.no_shim, a.cc):
            print(f"{path.stat().st_size:>9,} {path}")
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
