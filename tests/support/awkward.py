"""2,400 strings of every awkward kind, the same on every machine and Python.

Code points are given by range, not by `unicodedata`, whose tables change with the Python version;
choices come from `random.Random(seed).random()`, whose sequence is promised to stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")

SCRIPTS: dict[str, tuple[int, int]] = {
    "ascii": (0x20, 0x7F),
    "latin1": (0xA0, 0x100),
    "latin extended": (0x100, 0x250),
    "ipa": (0x250, 0x2B0),
    "combining": (0x300, 0x370),
    "greek": (0x370, 0x400),
    "cyrillic": (0x400, 0x530),
    "armenian": (0x531, 0x58A),
    "hebrew": (0x591, 0x5F5),
    "arabic": (0x600, 0x700),
    "devanagari": (0x900, 0x980),
    "bengali": (0x980, 0x9FF),
    "tamil": (0xB82, 0xBFB),
    "thai": (0xE01, 0xE5C),
    "lao": (0xE81, 0xEE0),
    "tibetan": (0xF00, 0xFDB),
    "georgian": (0x10A0, 0x1100),
    "hangul jamo": (0x1100, 0x1200),
    "ethiopic": (0x1200, 0x1380),
    "cherokee": (0x13A0, 0x13FE),
    "khmer": (0x1780, 0x17FA),
    "greek extended": (0x1F00, 0x2000),
    "general punctuation": (0x2000, 0x2070),
    "super and subscripts": (0x2070, 0x20A0),
    "currency": (0x20A0, 0x20C1),
    "letterlike and number forms": (0x2100, 0x2190),
    "arrows and mathematics": (0x2190, 0x2300),
    "boxes": (0x2500, 0x2600),
    "symbols": (0x2600, 0x27C0),
    "braille": (0x2800, 0x2900),
    "cjk punctuation": (0x3000, 0x3040),
    "hiragana": (0x3041, 0x30A0),
    "katakana": (0x30A0, 0x3100),
    "cjk extension a": (0x3400, 0x4DC0),
    "cjk": (0x4E00, 0xA000),
    "hangul": (0xAC00, 0xD7A4),
    "below the surrogates": (0xD700, 0xD800),
    "private use": (0xE000, 0xE100),
    "cjk compatibility": (0xF900, 0xFB00),
    "presentation forms": (0xFB00, 0xFE00),
    "variation selectors": (0xFE00, 0xFE10),
    "full width": (0xFF00, 0xFFF0),
    "specials": (0xFFF0, 0x10000),
    "gothic": (0x10330, 0x1034B),
    "cuneiform": (0x12000, 0x12100),
    "musical": (0x1D100, 0x1D1E9),
    "mathematical letters": (0x1D400, 0x1D800),
    "mahjong and cards": (0x1F000, 0x1F100),
    "enclosed": (0x1F100, 0x1F300),
    "emoji": (0x1F300, 0x1F650),
    "transport": (0x1F680, 0x1F700),
    "more emoji": (0x1F900, 0x1FA00),
    "cjk extension b": (0x20000, 0x20200),
    "unassigned planes": (0x50000, 0x50020),
    "tags": (0xE0001, 0xE0080),
    "last plane": (0x10FF00, 0x110000),
}

SPACES = [
    " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r", "\r\n", "\r\n\r\n", "\x0b",
    "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680", "\u2000", "\u2003",
    "\u2007", "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000",
    "\ufeff", "\u180e",
]  # fmt: skip

WORDS = [
    "the", "of", "and", "Retrieval", "tokenizer", "don't", "I'll", "we've", "they're",
    "HELLO", "camelCase", "snake_case", "naïve", "café", "coöperate", "Größe",
    "schön", "straße", "İstanbul", "ǅungla", "ﬁeld", "ﬂow", "日本語", "東京都", "你好", "世界",
    "한국어", "서울", "привет", "мир", "новосибирск", "שלום", "مرحبا", "สวัสดี", "नमस्ते",
    "3.14", "1,000,000", "2024-11-30", "0xFF", "1e-9", "½", "²", "Ⅷ", "٣٤",
    "12345678", "a", "b", "c++", "C#", "foo()", "=>", "!=", "===", "&&", "||", "::",
    "->", "...", "--", "—", "–", "“quoted”", "‘it’s’", "«oui»", "(x)", "[y]", "{z}",
    "<t>", "</t>", "@me", "#tag", "https://example.com/a?b=c&d=e%20f#g",
    "user@example.org", "/usr/local/bin", "C:\\Users\\x", "😀", "👍🏽",
    "👩\u200d👩\u200d👧\u200d👦", "🇫🇷", "🏳️\u200d🌈", "❤️", "1️⃣", "赋",
]  # fmt: skip

SPECIALS = [
    "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "[CLS]", "[SEP]", "[UNK]",
    "[PAD]", "[MASK]", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>",
    "<end_of_turn>", "<unused0>", "<unused99>", "<0x0A>", "<0xF0>", "<0xZZ>", "▁", "▁▁", "▁the",
    "<table>", "</table>", "<h1>", "<jupyter_code>", "<file_sep>", "<fim_prefix>", "[multimodal]",
    "<start_of_image>", "[INST]", "<image_soft_token>", "<|reserved_special_token_7|>",
    "<|python_tag|>", "<tool_call>", "<think>", "##ing", "Ġthe", "ĊĊ", "<start_of_turn",
    "start_of_turn>", "<|im_end|", "<<s>>", "<unused6241>",
]  # fmt: skip

FIXED = [
    "", "This is 🦙.cpp", "Hello world! Café déjà vu — 123 😊", "schön", "Größe", "café",
    "cafe\u0301", "The QUICK brown fox — didn't jump over the lazy dog?!", "你好，世界", "hello !",
    "x != y", "\nfoo 🤗 bar   ", "theorem t (a b : ℕ) : a + b = b + a := by", "한글",
    "\u1112\u1161\u11ab", "赋", "a\x00b", "\x00", "\x01\x02\x03\x04\x06\x13\x14\x16\x1d\x7f",
    "\ufffd", "\ufffd\ufffd a", "\ue000x", "\ud7ff\ue000", "a\u200bb\u200cc\u200dd\u2060e\ufefff",
    "\u202eevil\u202c", "\u2066x\u2069", "e\u0301" * 40, "a" + "\u0300" * 60,
    "Z\u0351\u036b\u0343a\u0321lgo", "ﷺ", "ﬃ", "ẞ", "ΑΣ", "ÅÅ", "①②③", "㍿", "🧑🏿‍🚀🧑🏿‍🚀",
    "👨‍👩‍👧‍👦👨‍👩‍👧‍👦", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🇩🇪🇫🇷🇯🇵🇦",
    "☺️☺︎☺", "def f(x):\n    return x\n\n\nclass A:\n\tpass\n", "if (a<b&&c>=d){e=f?g:h;}",
    "SELECT * FROM t WHERE x='y';--", '{"a": [1, 2.5e-3, null], "b": "\\u00e9\\n"}',
    "<html><body><h1>x</h1>\n\n<table>\t</table></html>", "a  b   c    d     e", "  leading",
    "trailing  ", " ", "                                  x", "\n\n\n\n\n\nx", "\t\t\tx",
    " \n \n ", "\r\n", "x\r\ny\rz\nw", "999999999999999999999999", "1 22 333 4444 55555",
    "'s 't 're 'VE 'Ll'D", "it's IT'S It’s", "l'été", "haha" * 30, "aaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababab", "ÀÁÂÃÄÅÆÇÈÉÊË", ">▁</", "> </", ">  </",
    "a> </b", ">▁▁</", ".....", "!!!???", "-" * 100, "=" * 33, "_" * 17, "#" * 9, "x" * 1000,
    " " * 33, " " * 64, " " * 500, "\n" * 33, "\n" * 100, "\t" * 40, "▁" * 40, "☃" * 50, "é" * 99,
    "न" * 99, "Pneumonoultramicroscopicsilicovolcanoconiosis",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerk",
    "https://user:pw@sub.example.co.uk:8080/p/a/t/h.html?query=string&x=%E4%BD%A0#frag",
    "\u0130\u0131ſK",
]  # fmt: skip


class _Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        return int(self._random.random() * n)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def character(self) -> str:
        """Any character but a surrogate, each script as likely as another."""
        low, high = self.pick(list(SCRIPTS.values()))
        return chr(low + self.below(high - low))


def _scripts(dice: _Dice) -> list[str]:
    found = []
    for low, high in SCRIPTS.values():
        letters = [chr(low + dice.below(high - low)) for _ in range(60)]
        found += ["".join(letters[:20]), " ".join(letters[20:40]), letters[40], letters[41] * 5]
        found += ["a" + letters[42] + "b", "".join(letters[43:50]) + " x " + "".join(letters[50:])]
    return found


def _mixed(dice: _Dice, count: int) -> list[str]:
    return ["".join(dice.character() for _ in range(1 + dice.below(40))) for _ in range(count)]


def _sentences(dice: _Dice, count: int) -> list[str]:
    def sentence() -> str:
        parts = [dice.pick(WORDS) + dice.pick(SPACES) for _ in range(2 + dice.below(14))]
        return "".join(parts) if dice.below(2) else " ".join(part.strip() for part in parts)

    return [sentence() for _ in range(count)]


def _glued(dice: _Dice, count: int) -> list[str]:
    """Words, spaces and single characters with nothing between them."""
    kinds = (WORDS, SPACES, list("aA1.-'<>|_▁ \n\t"))
    return [
        "".join(dice.pick(dice.pick(kinds)) for _ in range(1 + dice.below(12)))
        for _ in range(count)
    ]


def _with_specials(dice: _Dice, count: int) -> list[str]:
    around = ["", " ", "x", "\n", "  ", "é", ".", "▁"]
    return [
        "".join(dice.pick(around) + dice.pick(SPECIALS) for _ in range(1 + dice.below(4)))
        + dice.pick(around)
        for _ in range(count)
    ]


def _spaces(dice: _Dice, count: int) -> list[str]:
    found = [f"a{space}b" for space in SPACES] + [space * 3 for space in SPACES]
    return found + [
        "".join(dice.pick(SPACES) for _ in range(1 + dice.below(8))) + dice.pick(["", "x", "."])
        for _ in range(count)
    ]


def _digits(dice: _Dice, count: int) -> list[str]:
    alphabet = "0123456789,.-+e /:٠١٢٣४५६𝟘𝟙½²①Ⅳ一二三"
    return ["".join(dice.pick(alphabet) for _ in range(1 + dice.below(20))) for _ in range(count)]


@cache
def awkward_texts() -> tuple[str, ...]:
    """The corpus: at least 2,000 different texts, with the longest (5,000 words) last."""
    dice = _Dice(20240607)
    texts = [*FIXED, *SPECIALS, *WORDS, *SPACES, *_scripts(dice), *_mixed(dice, 500)]
    texts += [*_sentences(dice, 400), *_glued(dice, 400), *_with_specials(dice, 300)]
    texts += [*_spaces(dice, 150), *_digits(dice, 100)]
    texts.append(" ".join(dice.pick(WORDS) for _ in range(5000)))
    return tuple(dict.fromkeys(texts))
