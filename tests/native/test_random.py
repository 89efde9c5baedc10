"""uniform and normal against a plain Philox4x32-10 that passes the published known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, ESHAPE, ISAS, run, set_isa, set_threads, step

pytestmark = pytest.mark.usefixtures("each_isa")

# Random123's kat_vectors: counter, key, answer
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """One block of Philox4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(n: int, key: int, offset: int) -> Any:
    """The first two words of n consecutive blocks, as the kernels count them."""
    halves = (key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF)
    out = []
    for e in range(n):
        c = (e + offset) & 0xFFFFFFFFFFFFFFFF
        out.append(philox((c & 0xFFFFFFFF, c >> 32, 0, 0), halves)[:2])
    return np.array(out, np.float64)


def test_the_model_passes_the_known_answers() -> None:
    """Salmon et al. 2011, Random123 kat_vectors."""
    for counter, key, answer in KNOWN:
        assert philox(counter, key) == answer


@pytest.mark.parametrize(("key", "offset"), [(0, 0), (299792458, 7), (-1, 2**32 - 20), (2**62, -9)])
def test_uniform_is_24_bits_of_the_first_word(key: int, offset: int) -> None:
    """Counters carry into their second word; keys have 64 bits."""
    got = run("uniform", np.zeros(77, np.float32), i=(key, offset))
    want = np.floor(words(77, key & (2**64 - 1), offset)[:, 0] / 256) / 2**24
    assert (got == want).all()


def test_normal_is_box_muller_on_two_words() -> None:
    """f64 arithmetic, rounded once: within half a unit and a little."""
    got = run("normal", np.zeros(1001, np.float32), i=(42, 5))
    w = words(1001, 42, 5)
    want = np.sqrt(-2 * np.log((w[:, 0] + 1) / 2**32)) * np.cos(2 * np.pi * w[:, 1] / 2**32)
    assert np.abs(got - want).max() < 3e-7
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


def test_the_same_bits_on_every_isa_for_any_cut_and_any_threads() -> None:
    """A stream can be made in pieces."""
    for op in ("uniform", "normal"):
        outs = []
        for isa in ISAS:
            set_isa(isa)
            for threads in (1, 3):
                set_threads(threads)
                outs.append(run(op, np.zeros(100_003, np.float32), i=(9, 100)))
        set_threads(2)
        assert len({o.tobytes() for o in outs}) == 1
        tail = run(op, np.zeros(3, np.float32), i=(9, 100 + 100_000))
        assert tail.tobytes() == outs[0][100_000:].tobytes()


def test_moments() -> None:
    """A million numbers: mean, variance, range, even spread over 1,000 bins."""
    u = run("uniform", np.zeros(1_000_000, np.float32), i=(1, 0)).astype(np.float64)
    assert u.min() >= 0 and u.max() < 1
    counts = np.bincount((u * 1000).astype(int), minlength=1000)
    assert abs(((counts - 1000) ** 2 / 1000).sum() - 999) < 6 * (2 * 999) ** 0.5
    g = run("normal", np.zeros(1_000_000, np.float32), i=(2, 0)).astype(np.float64)
    assert abs(g.mean()) < 5e-3 and abs(g.var() - 1) < 1e-2
    assert abs((g**3).mean()) < 2e-2 and abs((g**4).mean() - 3) < 5e-2


def test_what_is_refused() -> None:
    """Only contiguous f32."""
    assert step("uniform", np.zeros(3)) == EDTYPE
    assert step("normal", np.zeros((4, 4), np.float32).T[1:]) == ESHAPE
    assert step("normal", np.zeros(3, np.float32), np.zeros(3, np.float32)) == EARGS
    assert step("uniform", np.zeros(0, np.float32)) == 0
