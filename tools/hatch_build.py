"""The build hook: compiles native/ and gives the wheel its platform tag."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build_native


def wheel_tag(with_shim: bool, target: str) -> str:
    """cp311-abi3 with the shim, py3-none without; the C library's age from the target."""
    arch = target.split("-", 1)[0]
    if "macos" in target:
        system = f"macosx_11_0_{'arm64' if arch == 'aarch64' else arch}"
    elif "windows" in target:
        system = "win_amd64" if arch == "x86_64" else "win_arm64"
    elif "musl" in target:
        system = f"musllinux_1_1_{arch}"
    elif build_native.find_compiler()[-1] == "cc" and "ziglang" in build_native.find_compiler():
        system = f"manylinux_2_17_{arch}"
    else:
        system = f"linux_{platform.machine()}"  # a system compiler links the system's own libc
    return f"{'cp311-abi3' if with_shim else 'py3-none'}-{system}"


class NativeBuildHook(BuildHookInterface[Any]):
    """Runs before a wheel (or an editable install) is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        out = Path(self.root) / "src/candle/_native"
        made = build_native.build(out)
        with_shim = any(p.name.startswith("_shim") for p in made)
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(with_shim, build_native.default_target())
