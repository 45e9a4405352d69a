"""The context cache in a Redis (or Valkey), for any number of processes.

Satisfies `strandline.context.cache.ContextCache`. A Redis that is away, slow or refuses what
it is asked costs a warning and is left alone for a while; it comes back by itself. Names of
keys are digests: they tell nothing of sessions. Source: spec 3, Caches.

Under ``strandline:ctx:`` there are

- ``v:<key>`` the values, which expire by themselves;
- ``used`` a sorted set of them, the least recently used first, and ``owner``, a hash that says
  of which session each is;
- ``s:<session>`` the set of a session's values;
- ``uses`` counts, so that order needs no clock.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from strandline.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
    import redis

PREFIX = "strandline:ctx:"
LARGEST_VALUE_BYTES = 4 << 20
LONGEST_MS = 24 * 3_600_000
"""Nothing is kept longer, and what is kept about values no longer than this after the last."""

TIMEOUT_S = 0.25
"""For connecting, and for each reading and writing."""

PAUSE_S = 30.0
"""A Redis that failed is left alone for so long."""

_NAMES = """
local prefix = KEYS[1]
local used, owner, uses = prefix .. 'used', prefix .. 'owner', prefix .. 'uses'
local function of_kind(key, kind)
  local is = redis.call('TYPE', key).ok
  if is ~= kind and is ~= 'none' then redis.call('DEL', key) end
end
local function own()
  of_kind(used, 'zset')
  of_kind(owner, 'hash')
  of_kind(uses, 'string')
  local count = tonumber(redis.call('GET', uses) or '0')
  if not count or count < 0 or count > 2^50 then redis.call('DEL', uses) end
end
local function forget(entry)
  local session = redis.call('HGET', owner, entry)
  if session then
    local of_session = prefix .. 's:' .. session
    of_kind(of_session, 'set')
    redis.call('SREM', of_session, entry)
  end
  redis.call('HDEL', owner, entry)
  redis.call('ZREM', used, entry)
  redis.call('DEL', prefix .. 'v:' .. entry)
end
own()
"""
"""What the scripts share. A name of ours that holds something else is begun anew."""

_GET = (
    _NAMES
    + """
local entry, most = ARGV[1], tonumber(ARGV[2])
local key = prefix .. 'v:' .. entry
of_kind(key, 'string')
if redis.call('EXISTS', key) == 0 or redis.call('STRLEN', key) > most then
  forget(entry)
  return false
end
redis.call('ZADD', used, 'XX', redis.call('INCR', uses), entry)
return redis.call('GET', key)
"""
)

_PUT = (
    _NAMES
    + """
local entry, session, value = ARGV[1], ARGV[2], ARGV[3]
local lifetime, most, longest = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local of_session = prefix .. 's:' .. session
forget(entry)
of_kind(of_session, 'set')
redis.call('SET', prefix .. 'v:' .. entry, value, 'PX', lifetime)
redis.call('ZADD', used, redis.call('INCR', uses), entry)
redis.call('HSET', owner, entry, session)
redis.call('SADD', of_session, entry)
local excess = redis.call('ZCARD', used) - most
if excess > 0 then
  for _, oldest in ipairs(redis.call('ZRANGE', used, 0, excess - 1)) do forget(oldest) end
end
for _, key in ipairs({used, owner, uses, of_session}) do redis.call('PEXPIRE', key, longest) end
return true
"""
)

_DROP = (
    _NAMES
    + """
local of_session = prefix .. 's:' .. ARGV[1]
of_kind(of_session, 'set')
for _, entry in ipairs(redis.call('SMEMBERS', of_session)) do forget(entry) end
redis.call('DEL', of_session)
return true
"""
)


class RedisContextCache:
    """Values in the Redis at `url` (``redis://``, ``rediss://``, ``unix://``).

    `warn` hears one sentence an outage, which never tells the URL: it may hold a password.
    `monotonic_s` is for tests. Raises `ConfigError` for a URL that is none, and
    `MissingDependency`; nothing once it is made.
    """

    def __init__(
        self,
        url: str,
        max_entries: int,
        warn: Callable[[str], None],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_entries = max_entries
        self._outage = _Outage(warn, monotonic_s)
        self._client = _client(url)
        self._get = self._client.register_script(_GET)
        self._put = self._client.register_script(_PUT)
        self._drop = self._client.register_script(_DROP)

    def get(self, key: str) -> bytes | None:
        """The value, which is now the most recently used."""
        value = self._run(self._get, [_name(key), LARGEST_VALUE_BYTES])
        return value if isinstance(value, bytes) else None

    def put(self, session: str, key: str, value: bytes, lifetime_ms: int) -> None:
        """Keep the value, in place of what was under its key."""
        lifetime_ms = min(lifetime_ms, LONGEST_MS)
        if lifetime_ms > 0 and len(value) <= LARGEST_VALUE_BYTES:
            rest = [lifetime_ms, self._max_entries, LONGEST_MS]
            self._run(self._put, [_name(key), _name(session), value, *rest])

    def drop(self, session: str) -> None:
        """Forget what was put for the session."""
        self._run(self._drop, [_name(session)])

    def close(self) -> None:
        """Give back the connections."""
        self._client.close()

    def _run(self, script: Any, arguments: list[str | bytes | int]) -> Any:
        """What the script gives; None where the Redis is away."""
        if not self._outage.may_try():
            return None
        try:
            result = script(keys=[PREFIX], args=arguments)
        except Exception as error:  # noqa: BLE001 - a server may answer anything, and drivers trip
            self._outage.began(_why(error))
            return None
        self._outage.ended()
        return result


class _Outage:
    """Whether the Redis is left alone at the moment. Safe for threads."""

    def __init__(self, warn: Callable[[str], None], monotonic_s: Callable[[], float]) -> None:
        self._warn = warn
        self._now_s = monotonic_s
        self._lock = Lock()
        self._again_s: float | None = None  # None: all is well

    def may_try(self) -> bool:
        """Whether to ask it now. After a pause one asks first, the others go on without."""
        with self._lock:
            if self._again_s is None:
                return True
            if self._now_s() < self._again_s:
                return False
            self._again_s = self._now_s() + PAUSE_S
            return True

    def began(self, why: str) -> None:
        """It failed; the first failure of an outage is told."""
        with self._lock:
            is_first = self._again_s is None
            self._again_s = self._now_s() + PAUSE_S
        if is_first:
            self._warn(
                f"the context cache is away: the Redis of context.cache.redisUrl {why}; contexts "
                f"are computed without it, and it is tried again every {PAUSE_S:g} s"
            )

    def ended(self) -> None:
        """It answered."""
        with self._lock:
            self._again_s = None


def _client(url: str) -> redis.Redis:
    try:
        import redis  # noqa: PLC0415 - an extra, loaded by who uses it
        from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
        from redis.retry import Retry  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingDependency(
            "context.cache.storage is redis, and the client for it is not installed",
            remedy="pip install 'strandline[redis]', or set context.cache.storage to memory",
        ) from None
    # Whatever the URL says of them: a context never waits for a cache.
    ours = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
    }
    try:
        pool = redis.ConnectionPool.from_url(url)
        pool.connection_kwargs.update(ours)
        pool.connection_class(**pool.connection_kwargs)  # connects nothing, and checks options
    except (ValueError, TypeError, redis.RedisError):  # their texts may quote the URL
        raise ConfigError(
            "context.cache.redisUrl is no address of a Redis",
            remedy="write redis://[user:password@]host[:port][/number], rediss://… or unix://…",
        ) from None
    client = redis.Redis(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client


def _why(error: Exception) -> str:
    """What went wrong, without any word of the address or of the answer."""
    import redis  # noqa: PLC0415 - it is loaded already

    match error:
        case redis.AuthenticationError() | redis.exceptions.NoPermissionError():
            return "refused the user or the password"
        case redis.TimeoutError() | TimeoutError():
            return f"did not answer within {TIMEOUT_S:g} s"
        case redis.ConnectionError() | OSError():
            return "cannot be reached"
        case _:
            return f"answered with an error ({type(error).__name__})"


def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
