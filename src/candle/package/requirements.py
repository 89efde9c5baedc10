"""What a package asks of a machine, and the check of it against what was detected."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ..errors import PackageError, RequirementError

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MEMORY = re.compile(r"([1-9][0-9]{0,5}) (KiB|MiB|GiB|TiB)")
_FEATURE = re.compile(r"[a-z0-9_.]{1,32}")
_OP = "requirements"
_VERSIONED = ("candle", "python", "cuda")


@dataclass(frozen=True, slots=True)
class Requirements:
    """`[requirements]` of a manifest; an empty field asks for nothing.

    `candle`, `python` and `cuda` are PEP 440 specifiers (">=11.7,<12"), `cpu_features` names
    ("avx2"), `memory` the least that must be free ("2 GiB").
    """

    candle: str = ""
    python: str = ""
    cuda: str = ""
    memory: str = ""
    cpu_features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _VERSIONED:
            _check_specifier(name, getattr(self, name))
        parse_memory(self.memory)
        features = self.cpu_features
        if not all(isinstance(n, str) and _FEATURE.fullmatch(n) for n in features):
            raise PackageError(_OP, "cpu_features as names", repr(features)[:80])

    @staticmethod
    def parse(table: object) -> Requirements:
        """Check a TOML table. Raises PackageError."""
        if not isinstance(table, dict):
            raise PackageError(_OP, "a table [requirements]", repr(table)[:80])
        unknown = table.keys() - {f.name for f in fields(Requirements)}
        if unknown:
            raise PackageError(_OP, "known requirements", ", ".join(sorted(unknown)))
        features = table.get("cpu_features", [])
        if not isinstance(features, list):
            raise PackageError(_OP, "cpu_features as a list", repr(features)[:80])
        return Requirements(**{**table, "cpu_features": tuple(features)})

    def to_toml(self) -> list[str]:
        """The lines of the TOML table, without what asks for nothing."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        lines = [f"{name} = {quote(value)}" for name, value in values.items() if value]
        return ["", "[requirements]", *lines] if lines else []

    def unmet(self, detected: Mapping[str, Any]) -> list[str]:
        """What `detected` lacks, one sentence each: needed, here, and what would satisfy it.

        `detected` holds versions as text under "candle", "python" and "cuda" (absent or None: not
        here), free bytes under "memory", and names under "cpu_features".
        """
        found = [_unmet_version(n, getattr(self, n), detected.get(n)) for n in _VERSIONED]
        found.append(_unmet_memory(self.memory, detected.get("memory")))
        found.append(_unmet_features(self.cpu_features, detected.get("cpu_features") or ()))
        return [sentence for sentence in found if sentence]

    def require(self, op: str, detected: Mapping[str, Any]) -> None:
        """Raise RequirementError that lists all that is lacking."""
        lacking = self.unmet(detected)
        if lacking:
            raise RequirementError(op, "a machine that meets its requirements", "; ".join(lacking))


def quote(value: str | tuple[str, ...]) -> str:
    """A TOML string or list of them; the text is printable, so JSON's escapes are TOML's."""
    return json.dumps(value, ensure_ascii=False)


def parse_memory(text: object) -> int:
    """Bytes of "2 GiB"; 0 for an empty text. Raises PackageError."""
    if text == "":
        return 0
    found = _MEMORY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise PackageError(_OP, 'memory such as "512 MiB" or "2 GiB"', repr(text)[:80])
    return int(found[1]) * _UNITS[found[2]]


def _check_specifier(name: str, text: object) -> None:
    try:
        if not isinstance(text, str) or len(text) > 100 or not text.isprintable():
            raise InvalidSpecifier(text)
        SpecifierSet(text)
    except InvalidSpecifier:
        example = 'a version specifier such as ">=11.7,<12"'
        raise PackageError(_OP, f"{name} as {example}", repr(text)[:80]) from None


def _unmet_version(name: str, specifier: str, here: object) -> str:
    if not specifier:
        return ""
    if here is None:
        return f"{name} {specifier} is needed, none is here: install one in that range"
    try:
        met = SpecifierSet(specifier).contains(Version(str(here)), prereleases=True)
    except InvalidVersion:
        met = False
    return "" if met else f"{name} {specifier} is needed, {here} is here"


def _unmet_memory(text: str, here: object) -> str:
    needed = parse_memory(text)
    if not needed or (isinstance(here, int) and here >= needed):
        return ""
    found = f"{here / (1 << 20):.0f} MiB" if isinstance(here, int) else "an unknown amount"
    return f"{text} of memory are needed, {found} is free: close programs or take a smaller model"


def _unmet_features(names: tuple[str, ...], here: object) -> str:
    present = set(here) if isinstance(here, set | frozenset | list | tuple) else set()
    lacking = [n for n in names if n not in present]
    if not lacking:
        return ""
    having = ", ".join(sorted(present)) or "none"
    return f"CPU features {', '.join(lacking)} are needed, here are {having}"
