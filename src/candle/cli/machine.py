"""Facts about this machine, without a dependency: `doctor` prints them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path


def cpu_model() -> str:
    """What the processor calls itself, or its architecture where it does not say."""
    found = ""
    if sys.platform == "linux":
        text = _read("/proc/cpuinfo")
        match = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
        found = match[1].strip() if match else ""
    elif sys.platform == "darwin":
        found = _run("sysctl", "-n", "machdep.cpu.brand_string")
    return found or platform.processor() or platform.machine()


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> tuple[int, int]:
    """Bytes of memory: in all, and free for programs; 0 where the system does not say."""
    fields = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", _read("/proc/meminfo"), re.M))
    if fields:
        return int(fields.get("MemTotal", 0)) << 10, int(fields.get("MemAvailable", 0)) << 10
    if sys.platform == "darwin":
        return int(_run("sysctl", "-n", "hw.memsize") or 0), 0
    return 0, 0


def is_writable(folder: Path) -> bool:
    """Whether `folder` can be written to, or made."""
    while not os.path.exists(folder) and folder != folder.parent:  # pathlib's may raise
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
