"""Contexts that were built before: looked up instead of computed, where an operator wants it.

What is looked up is what would be computed, or nothing. Source: spec 3, Caches (context cache).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from strandline.context.cache import ContextCache, ContextKey, digest_of
from strandline.context.cached_view import decode, encode
from strandline.context.clean_path import Clean
from strandline.context.prune import Moment, Pruned

LONGEST_MS = 3_600_000
"""A context that may hold for ever is kept this long."""


@dataclass(frozen=True)
class ContextCaching:
    """A context cache in use; `drops_on_new_message`: a session has one context in it.

    `program` is the version of the program: another one may choose otherwise.
    """

    cache: ContextCache
    drops_on_new_message: bool = True
    program: str = ""

    def pruned(
        self, key: ContextKey, clean: Clean, moment: Moment, compute: Callable[[], Pruned]
    ) -> Pruned:
        """The context of `key` at that moment."""
        name = replace(key, program=self.program).text
        value = self.cache.get(name)
        view = decode(value, clean, name, moment.now_ms) if value is not None else None
        if view is not None:
            return Pruned(view)
        pruned = compute()
        if pruned.wanted is None:
            self._keep(key, name, clean, moment, pruned)
        return pruned

    def _keep(
        self, key: ContextKey, name: str, clean: Clean, moment: Moment, pruned: Pruned
    ) -> None:
        until_ms = pruned.valid_until_ms
        value = encode(pruned.view, clean, name, from_ms=moment.now_ms, until_ms=until_ms)
        lifetime_ms = int(min(LONGEST_MS, until_ms - moment.now_ms))
        if self.drops_on_new_message:
            self.cache.drop(key.session_id)
        if value is not None and lifetime_ms > 0:
            self.cache.put(key.session_id, name, value, lifetime_ms)


def key_of(
    session_id: str,
    leaf_id: str | None,
    rules: object,
    model: str,
    cap: int,
    counter: str,
    moment: Moment,
) -> ContextKey:
    """The key of a context; `rules` are those that chose and pruned it (engine, policy)."""
    return ContextKey(
        session_id,
        leaf_id,
        digest_of(rules),
        model,
        moment.limit,
        cap,
        counter,
        digest_of(moment.pins),
        # Which messages one covers is known by its text and its time well enough.
        digest_of([[each.rules, each.made_ms, each.text] for each in moment.summaries]),
    )
