"""`candle doctor`: what candle finds on this machine, and what it chose and why."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement

from .. import _native
from .._version import __version__
from ..errors import CandleError
from ..package.hub_cache import cache_folder, find_snapshot
from ..package.store import Store
from ..package.wheels import KNOWN, WheelModel, module_folder, plugins
from . import exits, machine, output
from .options import json_flag

EPILOG = """\
\b
Examples:
  candle doctor
  CANDLE_ISA=scalar candle doctor --json

CANDLE_ISA, CANDLE_NUM_THREADS, CANDLE_BINDING and CANDLE_HOME change what is chosen. Exits with 1
if there is a problem.
"""
OPTIONAL = ("numpy",)  # used where it is there

Facts = dict[str, Any]


@click.command("doctor", epilog=EPILOG)
@json_flag("Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what candle finds on this machine."""
    problems: list[str] = []
    facts = {
        "candle": program_facts(),
        "machine": machine_facts(),
        "kernels": kernel_facts(problems),
        "store": store_facts(problems),
        "models": model_facts(),
    }
    facts["problems"] = problems
    if as_json:
        output.say_json(facts)
    else:
        show(facts)
    if problems:
        ctx.exit(exits.FAILED)


def program_facts() -> Facts:
    """Versions, and where the program lies."""
    return {
        "version": __version__,
        "library": _native.VERSION,
        "path": str(Path(__file__).resolve().parent.parent),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "libraries": {name: version_of(name) for name in libraries()},
    }


def libraries() -> list[str]:
    """The distributions that candle uses, by its own metadata; none of a bare source tree."""
    try:
        needed = [Requirement(line) for line in metadata.requires("candle") or ()]
    except metadata.PackageNotFoundError:
        needed = []
    return [r.name for r in needed if r.marker is None] + list(OPTIONAL)


def version_of(name: str) -> str | None:
    """The version of an installed distribution, None without it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def machine_facts() -> Facts:
    """System, processor and memory (bytes)."""
    total, free = machine.memory()
    return {
        "system": platform.platform(),
        "cpu": machine.cpu_model(),
        "cpus": os.cpu_count() or 1,
        "usable_cpus": machine.usable_cpus(),
        "features": _native.cpu_features(),
        "memory": total,
        "memory_free": free,
    }


def kernel_facts(problems: list[str]) -> Facts:
    """Instruction set, threads and binding, each with the reason for it."""
    here, chosen = _native.isa_list(), _native.isa()
    asked = os.environ.get("CANDLE_ISA") or None
    why = "the strongest that this machine and this build have"
    if asked is not None:
        why = "CANDLE_ISA asks for it"
    if asked is not None and asked != chosen:
        problems.append(f"CANDLE_ISA={asked} is none of {', '.join(here)}: {chosen} is used")
        why = f"used, since CANDLE_ISA={asked} is none of these"
    count, wanted = _native.threads(), os.environ.get("CANDLE_NUM_THREADS") or None
    if wanted is not None and wanted.strip() != str(count):
        problems.append(f"CANDLE_NUM_THREADS={wanted}: {count} threads are used")
    shim = (
        "declarations compiled in" if _native.BINDING == "api" else "declarations read at run time"
    )
    return {
        "isa": chosen,
        "isa_why": why,
        "isas": here,
        "threads": count,
        "threads_why": "one a CPU" if wanted is None else "CANDLE_NUM_THREADS",
        "binding": _native.BINDING,
        "binding_why": shim,
    }


def store_facts(problems: list[str]) -> Facts:
    """Where packages lie, and which."""
    store = Store()
    writable = machine.is_writable(store.home)
    if not writable:
        problems.append(f"{store.home} cannot be written to: set CANDLE_HOME")
    try:
        packages = [
            {"name": p.name, "version": p.version, "kind": p.manifest.kind, "bytes": p.size}
            for p in store.list()
        ]
    except (CandleError, OSError) as error:
        problems.append(exits.explain(error)[0])
        packages = []
    from_environment = bool(os.environ.get("CANDLE_HOME"))
    return {
        "home": str(store.home),
        "home_why": "CANDLE_HOME" if from_environment else "the default",
        "writable": writable,
        "packages": packages,
        "hub_cache": str(cache_folder()),
    }


def model_facts() -> list[Facts]:
    """The models that are known by name: where each would be found, or how to get it."""
    found = [
        {"name": name, "source": find(model), "get": model.install_command}
        for name, model in KNOWN.items()
    ]
    for name, point in plugins().items():
        found.append({"name": name, "source": f"entry point {point.value}", "get": ""})
    return found


def find(model: WheelModel) -> str | None:
    """Where a known model lies, None if it is not here; nothing is unpacked."""
    folders = [module_folder(module) for module in model.modules]
    if folders and all(folders):
        return f"Python package {model.projects[0].partition('==')[0]}"
    snapshot = find_snapshot(model.repo)
    return None if snapshot is None else str(snapshot)


def show(facts: Facts) -> None:
    """All of it for people."""
    program, host, kernels, store = (facts[k] for k in ("candle", "machine", "kernels", "store"))
    memory = f"{host['memory'] / 2**30:.1f} GiB, {host['memory_free'] / 2**30:.1f} GiB free"
    rows = [
        ("candle", f"{program['version']}  ({program['path']})"),
        ("python", f"{program['python']}  ({program['executable']})"),
        ("libraries", ", ".join(f"{k} {v or '-'}" for k, v in program["libraries"].items())),
        ("system", host["system"]),
        ("cpu", f"{host['cpu']}, {host['usable_cpus']} of {host['cpus']} CPUs usable"),
        ("features", " ".join(host["features"]) or "none that matter"),
        ("memory", memory if host["memory"] else "unknown"),
        ("kernels", f"{kernels['isa']}: {kernels['isa_why']}  ({' '.join(kernels['isas'])})"),
        ("threads", f"{kernels['threads']}: {kernels['threads_why']}"),
        ("binding", f"{kernels['binding']}: {kernels['binding_why']}"),
        ("home", f"{store['home']}: {store['home_why']}"),
        ("hub cache", store["hub_cache"]),
    ]
    output.table(rows)
    show_found(store["packages"], facts["models"])
    for problem in facts["problems"]:
        output.say(f"problem: {problem}")


def show_found(packages: list[Facts], models: list[Facts]) -> None:
    """What is installed, and which models a name would find."""
    output.say("\ninstalled packages:" if packages else "\ninstalled packages: none")
    rows = [(p["name"], p["version"], p["kind"], output.human_size(p["bytes"])) for p in packages]
    output.table(rows, indent="  ")
    output.say("\nmodels known by name:")
    known = [(m["name"], m["source"] or f"not here: {m['get']}") for m in models]
    output.table(known, indent="  ")
