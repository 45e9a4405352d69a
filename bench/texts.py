"""Texts of about a kilobyte in three languages, no two alike, the same every time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

TEXT_BYTES = 1000


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def texts(language: str, count: int) -> list[str]:
    """So many texts in one of `LANGUAGES`."""
    piece = LANGUAGES[language]
    return [_filled(piece, random.Random(number)) for number in range(count)]  # noqa: S311 - meant to repeat


def _filled(piece: Callable[[random.Random], str], dice: random.Random) -> str:
    text = ""
    while len(text.encode()) < TEXT_BYTES:
        text += piece(dice)
    return text


_SYLLABLES = words(
    "an ber con del en for gra hal in jor ki lan mo ner os pre qua ri sta tem un ver"
)
_COMMON = words("the of and to in that it was for on are with as they at be this have from or")


def _sentence(dice: random.Random) -> str:
    chosen = [
        dice.choice(_COMMON) if dice.random() < 0.5 else _name(dice, dice.randint(1, 3), "")
        for _ in range(dice.randint(5, 16))
    ]
    return " ".join(chosen).capitalize() + dice.choice((". ", ", ", "? ", ".\n\n"))


def _name(dice: random.Random, syllables: int, joint: str) -> str:
    return joint.join(dice.choices(_SYLLABLES, k=syllables))


_KANJI = "日本語会話記録圧縮要約港船潮汐表計算機設定保存検索文書時間場所人物問題解決結果確認開始"
_KATAKANA = words("セッション エージェント トークン ファイル モデル ブランチ ログ")
_ENDINGS = words("について します しました から まで ですが という ように では")


def _clause(dice: random.Random) -> str:
    noun = "".join(dice.choices(_KANJI, k=dice.randint(1, 3)))
    word = dice.choice((noun, noun, dice.choice(_KATAKANA)))
    return word + dice.choice("はがをにでもの") + dice.choice(_ENDINGS) + dice.choice("、。、。\n")


_STATEMENTS = (
    "def {name}({other}: int = {number}) -> str:\n    return str({other} + {number})\n\n",
    "        if self.{name}[{other}] != {number}:\n            raise ValueError({name})\n",
    "const {name} = await {other}({{ id: {number}, key: '{name}' }});\n",
    "    for {name} in range({number}):  # {other}\n        {other}.append({name})\n",
)


def _statement(dice: random.Random) -> str:
    name, other = _name(dice, 2, "_"), _name(dice, 2, "_")
    return dice.choice(_STATEMENTS).format(name=name, other=other, number=dice.randint(0, 9999))


LANGUAGES: Mapping[str, Callable[[random.Random], str]] = {
    "Japanese": _clause,
    "code": _statement,
    "English": _sentence,
}
