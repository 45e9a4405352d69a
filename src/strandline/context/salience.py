"""What must survive a summary, told by the look of a sentence.

Rules for several languages: what a person forbids or demands, what is asked, and the
names, paths and numbers by which things are found again. Source: spec 3, Budget and
compaction (Summaries).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|[\r\n\u2028\u2029]+")  # noqa: RUF001 - full-width marks end sentences

_RULE = re.compile(
    r"""
    \b(?:must(?!\ have\b|'ve)|shall\ not|should\ not|shouldn't|not\ allowed|forbidden|required
      |make\ sure|keep\ in\ mind|under\ no\ circumstances|at\ all\ times)\b
    | (?:^|[-,;:*>]\s*|\bplease\s+|\band\s+|\bbut\s+)(?:do\ not|don't|never|always|remember|avoid
      |only|important|note)\b
    | \b(?:muss|müssen|darf\ nicht|dürfen\ nicht|niemals|unbedingt|merk\ dir|nicht\ vergessen)\b
    | \b(?:il\ faut|ne\ jamais|n'oublie|obligatoire|interdit)\b
    | \b(?:debe|deben|nunca|no\ olvides|obligatorio|prohibido)\b
    | しないで | ないでください | しないこと | しないように | するな | 禁止 | 必ず | 絶対 | 覚えて
    | 忘れない | 重要 | てはいけ | てはなら | べき | 厳守
    | 必须 | 必須 | 不要 | 不得 | 务必 | 记住 | 切勿 | 一定要
    """,
    re.IGNORECASE | re.VERBOSE,
)

_QUESTION = re.compile(r"[?？]['\")\]」』]*\s*$|(?:です|ます|でしょう)か[。]?\s*$")  # noqa: RUF001 - full-width question marks

_NAME = re.compile(
    r"""
    https?://[^\s<>"'`)\]}]+
    | [A-Za-z]:\\[^\s"'<>|]+
    | (?<![\w/.~-])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*
    | (?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w
    | (?<![\w/.-])[\w-]+(?:/[\w.-]+)*\.(?:c|cc|cfg|cpp|css|csv|go|h|html|java|js|json|jsonl|log|md
        |png|py|rb|rs|sh|sql|sqlite|toml|ts|tsx|txt|xml|ya?ml)\b
    | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b
    | \b(?=[0-9a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,40}\b
    | \b[A-Z][A-Z0-9]+-\d+\b
    | \b[A-Za-z]\w*_\w+\b
    | \bv?\d+(?:[.,:/-]\d+)+\b
    | \#\d+\b
    | \b\d{2,}\b
    """,
    re.ASCII | re.VERBOSE,
)


MOST_PROPER_SHARE = 0.1
FEW_PROPER_NAMES = 3
"""So many capitalised words are believed to be names, however short the text is."""

_PUNCTUATION = ".,:;!?'\"()"
_PROPER = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, each on one line with single spaces."""
    for part in _SENTENCE_END.split(text):
        sentence = " ".join(part.split())
        if sentence:
            yield sentence


def is_rule(sentence: str) -> bool:
    """Whether it demands or forbids something, or asks to remember it."""
    return _RULE.search(sentence) is not None


def is_question(sentence: str) -> bool:
    """Whether it asks something."""
    return _QUESTION.search(sentence) is not None


def weight(text: str) -> int:
    """How much there is in a text to remember: its names, numbers and capitalised words."""
    return 2 * (len(names(text)) + len(_PROPER.findall(text))) + min(len(text), 300) // 30


def proper_names(text: str) -> list[str]:
    """Capitalised words inside sentences, in order, with repetitions.

    None where they are too many to be names: German writes every noun so.
    """
    found = [word for word in _PROPER.findall(text) if not word.startswith("I'")]
    few = len(found) <= MOST_PROPER_SHARE * len(text.split())
    return found if few or len(found) <= FEW_PROPER_NAMES else []


def names(text: str) -> list[str]:
    """Paths, addresses, identifiers, versions and numbers, in order, with repetitions."""
    found: list[str] = []
    for word in text.split():
        # Most words are plain, and looking at them this way costs a tenth of the search.
        if not word.strip(_PUNCTUATION).isalpha():
            found += (name.rstrip(".,:;") for name in _NAME.findall(word))
    return found
