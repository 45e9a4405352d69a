"""Counting tokens: texts that nobody counted before, and a message that somebody did."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.histories import MB, user_message
from bench.measure import once_s
from bench.table import Row, duration
from strandline.context.tokens import MessageTokens
from strandline.models.tokenizer import counter

TITLE = "Counting tokens"
MB_PER_S = 20
TEXT_BYTES = 1000

_PIECES = re.compile(r"\w+|[^\w\s]+|\s+")
"""The control: a text cut into words, which is less than half of what a tokenizer does."""


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:  # noqa: ARG001 - writes nothing
    """Every row; `quick` is a tenth of the texts."""
    texts = 500 if quick else 5_000
    counting = counter("tiktoken")
    counting.count("the vocabulary is loaded with the first text")
    for language, make in _LANGUAGES.items():
        yield _unseen(language, counting.count, [make(random.Random(n)) for n in range(texts)])  # noqa: S311 - the same texts every time
    yield _seen(MessageTokens(counting))


def _unseen(language: str, count: Callable[[str], int], texts: Sequence[str]) -> Row:
    size = sum(len(text.encode()) for text in texts)
    control = size / once_s(lambda: [len(_PIECES.findall(text)) for text in texts]) / MB
    ours = size / once_s(lambda: [count(text) for text in texts]) / MB
    wanted = language != "English"
    return Row(
        f"{language}, unseen texts of {TEXT_BYTES // 1000} KB",
        f"{ours:.1f} MB/s",
        f"cutting it into words with re: {control:.1f} MB/s",
        ours / control,
        f"≥ {MB_PER_S} MB/s" if wanted else "",
        ours >= MB_PER_S if wanted else None,
    )


def _seen(tokens: MessageTokens) -> Row:
    message = user_message(1)
    first = once_s(lambda: tokens.of("seen", message))
    again = once_s(lambda: [tokens.of("seen", message) for _ in range(1000)]) / 1000
    return Row(
        "a message that was counted before",
        duration(again),
        f"the first time: {duration(first)}",
        first / again,
        "each once",
        again < first,
    )


# -- texts -----------------------------------------------------------------------------------


def _filled(more: Callable[[], str]) -> str:
    text = ""
    while len(text.encode()) < TEXT_BYTES:
        text += more()
    return text


_SYLLABLES = "an ber con del en for gra hal in jor ki lan mo ner os pre qua ri sta tem un ver".split()
_COMMON = "the of and to in that it was for on are with as they at be this have from or".split()


def _english(dice: random.Random) -> str:
    def sentence() -> str:
        words = [
            dice.choice(_COMMON)
            if dice.random() < 0.5
            else "".join(dice.choices(_SYLLABLES, k=dice.randint(1, 3)))
            for _ in range(dice.randint(5, 16))
        ]
        return " ".join(words).capitalize() + dice.choice((". ", ", ", "? ", ".\n\n"))

    return _filled(sentence)


_KANJI = "日本語会話記録圧縮要約港船潮汐表計算機設定保存検索文書時間場所人物問題解決結果確認開始終了"
_KANA = ("について", "します", "しました", "から", "まで", "ですが", "という", "ように", "では")
_KATAKANA = ("セッション", "エージェント", "トークン", "ファイル", "モデル", "ブランチ", "ログ")


def _japanese(dice: random.Random) -> str:
    def clause() -> str:
        noun = "".join(dice.choices(_KANJI, k=dice.randint(1, 3)))
        word = dice.choice((noun, noun, dice.choice(_KATAKANA)))
        return word + dice.choice("はがをにでもの") + dice.choice(_KANA) + dice.choice("、。、。\n")

    return _filled(clause)


def _code(dice: random.Random) -> str:
    def statement() -> str:
        name, other = ("_".join(dice.choices(_SYLLABLES, k=2)) for _ in range(2))
        number = dice.randint(0, 9999)
        return dice.choice((
            f"def {name}({other}: int = {number}) -> str:\n    return str({other} + {number})\n\n",
            f'        if self.{name}["{other}"] != {number}:\n            raise ValueError({name})\n',
            f"const {name} = await {other}({{ id: {number}, key: '{name}' }});\n",
            f"    for {name} in range({number}):  # {other}\n        {other}.append({name})\n",
        ))

    return _filled(statement)


_LANGUAGES: dict[str, Callable[[random.Random], str]] = {
    "Japanese": _japanese,
    "code": _code,
    "English": _english,
}
