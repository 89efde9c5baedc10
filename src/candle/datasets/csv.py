"""CSV files as columns: numbers as tensors, text as lists."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..arguments import require, shown
from ..dtype import DType
from ..errors import CandleError, FormatError, OptionError
from ..formats.paths import as_path
from ..tensor import Tensor

Column = Tensor | list[str]
Kind = DType | type[str]


def read_csv(
    path: str | os.PathLike[str],
    types: Mapping[str, DType | str | type[str]] | None = None,
    *,
    delimiter: str = ",",
) -> dict[str, Column]:
    """The columns of a CSV file with a header line, by name.

    `types` says which column is of which dtype, or `str`; where it is given, others are left out.
    Without it, columns are i64 where all fields are integers, else f32 where all are numbers, else
    lists of str. Raises FormatError with the line for what does not fit, and OSError.
    """
    where = as_path(path, "read csv")
    require("read csv", "dtypes by column", (Mapping, type(None)), types)
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise OptionError("read csv", "a delimiter of one character", shown(delimiter))
    name = where.name
    with where.open(encoding="utf-8-sig", newline="") as stream:
        rows = _rows(stream, name, delimiter)
        _, header = next(rows, (1, []))
        if not header or len(set(header)) != len(header):
            raise FormatError(f"{name} line 1", "column names, each once", header)
        lines, fields = [], []
        for line, row in rows:
            if len(row) != len(header):
                raise FormatError(f"{name} line {line}", f"{len(header)} fields", len(row))
            lines.append(line)
            fields.append(row)
    kinds = _kinds(name, header, types)
    columns = {h: [row[k] for row in fields] for k, h in enumerate(header)}
    if types is None:
        return {h: _guessed(name, h, column, lines) for h, column in columns.items()}
    return {h: _column(name, h, columns[h], kind, lines) for h, kind in kinds.items()}


def _rows(stream: Any, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of each row that is not empty."""
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        at = f"{name} line {reader.line_num}"
        raise FormatError(at, "CSV", str(error)) from error
    except UnicodeDecodeError as error:  # read in blocks: the line is not known
        raise FormatError(name, "CSV in UTF-8", str(error)) from error


def _kinds(name: str, header: list[str], types: Mapping[str, Any] | None) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for column, kind in (types or {}).items():
        if column not in header:
            raise FormatError(name, f"a column {column!r}", header)
        found[column] = str if kind is str else DType.of(kind)
    return found


def _guessed(name: str, header: str, column: list[str], lines: list[int]) -> Column:
    for kind, parse in ((DType.I64, int), (DType.F32, float)):
        try:
            for text in column:
                parse(text)
        except ValueError:
            continue
        return _column(name, header, column, kind, lines)
    return column


def _column(name: str, header: str, column: list[str], kind: Kind, lines: list[int]) -> Column:
    if not isinstance(kind, DType):
        return column
    parse = float if kind.is_float else int
    values = []
    for line, text in zip(lines, column, strict=True):
        try:
            values.append(parse(text))
        except ValueError as error:
            raise _misfit(name, header, line, kind, text) from error
    try:
        return Tensor(values, kind) if values else Tensor.zeros((0,), kind)
    except (CandleError, OverflowError):
        for line, text, value in zip(lines, column, values, strict=True):
            _hold(name, header, line, kind, text, value)
        raise


def _hold(name: str, header: str, line: int, kind: DType, text: str, value: float) -> None:
    """Raises FormatError where the dtype cannot hold a value."""
    try:
        Tensor(value, kind)
    except (CandleError, OverflowError) as error:
        raise _misfit(name, header, line, kind, text) from error


def _misfit(name: str, header: str, line: int, kind: DType, text: str) -> FormatError:
    return FormatError(f"{name} line {line}, column {header!r}", kind, repr(text[:80]))
