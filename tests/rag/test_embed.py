"""Embedding: order, batches, windows; and the real model where it is present."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from candle.dtype import DType
from candle.errors import ContextLengthError, NameNotFoundError, OptionError
from candle.rag.embed import Embedder, TruncationWarning
from candle.rag.retriever import Retriever
from candle.tensor import Tensor
from support import oracles


class Letters:
    """A tokenizer: one token a letter, between 1 and 2."""

    def encode(self, text: str, special: bool = True) -> list[int]:
        ids = [ord(c) for c in text]
        return [1, *ids, 2] if special else ids

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]


class Sums:
    """An encoder: (3 * the number of tokens, 4 * the same), remembering its batches."""

    dimension = 2
    max_tokens = 10
    digest = "0" * 64

    def __init__(self) -> None:
        self.batches: list[list[list[int]]] = []

    def encode(self, ids: list[list[int]]) -> Tensor:
        self.batches.append(ids)
        return Tensor([[3.0 * len(row), 4.0 * len(row)] for row in ids], DType.F32)


@pytest.fixture
def encoder() -> Sums:
    return Sums()


@pytest.fixture
def embedder(encoder: Sums) -> Embedder:
    return Embedder("sums", encoder, Letters(), "sha256:" + "0" * 64)  # type: ignore[arg-type]


def test_vectors_come_in_the_order_of_the_texts(embedder: Embedder, encoder: Sums) -> None:
    texts = ["abc", "a", "abcdefgh", "", "ab"] * 5
    vectors = embedder.embed(texts, normalize=False, batch_size=4)
    assert vectors.shape == (25, 2) and vectors.dtype is DType.F32
    assert [row[0] for row in vectors.to_vec()] == [3.0 * (len(t) + 2) for t in texts]
    lengths = [len(row) for batch in encoder.batches for row in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert max(map(len, encoder.batches)) == 4


def test_vectors_have_length_one_unless_asked_otherwise(embedder: Embedder) -> None:
    assert embedder.embed(["abc"]).to_vec()[0] == pytest.approx([0.6, 0.8])


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 2)


def test_a_text_beyond_the_window_is_cut_with_one_warning(
    embedder: Embedder, encoder: Sums
) -> None:
    with pytest.warns(TruncationWarning) as caught:
        embedder.embed(["a" * 20, "b" * 30, "c"])
    (warning,) = caught
    assert "2 of 3 texts are longer than the 10 tokens of sums (the longest has 32)" in str(
        warning.message
    )
    assert warning.filename == __file__
    assert encoder.batches[0][0] == [1, *[ord("a")] * 8, 2]


def test_or_refused(embedder: Embedder) -> None:
    with pytest.raises(ContextLengthError, match=r"text 1: expected at most 10 tokens, got 22"):
        embedder.embed(["a", "b" * 20], truncate="error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embedder.embed(["b" * 8], truncate="error")


def test_progress_counts_texts(embedder: Embedder) -> None:
    seen: list[tuple[int, int]] = []
    embedder.embed(["a"] * 10, batch_size=4, progress=lambda *a: seen.append(a))
    assert seen == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ({"texts": "one"}, "put it in a list"),
        ({"texts": ["a", None]}, r"texts\[1\]: expected a string, got NoneType"),
        ({"texts": [b"a"]}, r"texts\[0\]: expected a string, got bytes"),
        ({"texts": ["a"], "truncate": "never"}, "'warn' or 'error', got 'never'"),
        ({"texts": ["a"], "batch_size": 0}, "from 1, got 0"),
    ],
)
def test_arguments_that_make_no_sense(
    embedder: Embedder, arguments: dict[str, object], wanted: str
) -> None:
    with pytest.raises(OptionError, match=wanted):
        embedder.embed(**arguments)  # type: ignore[arg-type]


def test_what_is_no_embedding_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(NameNotFoundError, match="embedding model 'no-such-model'"):
        Embedder.load("no-such-model")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(NameNotFoundError, match="got gguf at"):
        Embedder.load(str(tmp_path / "m.gguf"))


# -- the real model --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return Embedder.load(str(oracles.minilm_tokenizer().parent))


@pytest.mark.model
def test_a_vector_does_not_depend_on_its_batch_mates(minilm: Embedder) -> None:
    """ST#2570, PR 1751; ReProver#34 (R23)."""
    long = "a much longer text about many things " * 20
    alone = minilm.embed(["short text"]).numpy()
    beside = minilm.embed([long, "short text", "", "mid length text here"]).numpy()
    assert np.array_equal(alone[0], beside[1])


@pytest.mark.model
def test_meaning_beats_words(minilm: Embedder) -> None:
    vectors = minilm.embed(["How do birds fly?", "Wings lift animals into the air.", "Tax law."])
    a, b, c = vectors.numpy()
    assert a @ b > a @ c + 0.2


@pytest.mark.model
def test_the_window_is_the_models_own(minilm: Embedder) -> None:
    assert (minilm.dimension, minilm.max_tokens) == (384, 256)
    ids = minilm.tokenize("word " * 300)
    assert len(ids) == 302 and (ids[0], ids[-1]) == (101, 102)
    with pytest.warns(TruncationWarning):
        cut = minilm.embed(["word " * 300])
    assert np.array_equal(cut.numpy(), minilm.embed(["word " * 254]).numpy())


@pytest.mark.model
def test_the_real_model_searches(tmp_path: Path, minilm: Embedder) -> None:
    texts = {
        "owl": "Owls are birds that hunt at night with silent wings.",
        "loan": "A mortgage is a loan that is secured by a house.",
        "soup": "Simmer the onions, add broth, and season with salt.",
    }
    path = tmp_path / "kb"
    with Retriever.create(path, minilm) as retriever:
        retriever.add_documents([{"id": k, "text": v} for k, v in texts.items()])
        assert retriever.search("nocturnal animals")[0].id == "owl"
        assert retriever.search("how to buy real estate")[0].id == "loan"
    with Retriever.load(path) as retriever:  # by the path that it remembers
        assert retriever.search("cooking")[0].id == "soup"
        long = "Owls are silent. " * 300
        report = retriever.add_documents([{"id": "long", "text": long}])
        assert report.split == () and report.chunks > 9
