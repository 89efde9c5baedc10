"""Data to train on: idx files, digits, CSV, and batches of them."""

from __future__ import annotations

from .csv import read_csv
from .digits import digits_json, fashion_mnist, mnist
from .idx import read_idx
from .loader import DataLoader, Dataset

__all__ = [
    "DataLoader",
    "Dataset",
    "digits_json",
    "fashion_mnist",
    "mnist",
    "read_csv",
    "read_idx",
]
