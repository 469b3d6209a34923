"""The limits of a server, all of them, for HTTP and gRPC alike: `gluonjit serve --help` prints this list."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

KB, MB = 2**10, 2**20


class About(NamedTuple):
    """What a limit is, for its description."""

    text: str
    unit: str = "N"
    """KB, MB, S for seconds; N for a count or a ratio."""
    option: str = ""
    """The option of the command line that sets it; empty for a limit that is always the same."""
    low: float = 0.001

    @property
    def scale(self) -> int:
        return {"KB": KB, "MB": MB}.get(self.unit, 1)


def _limit(default: Any, *about: Any) -> Any:
    return field(default=default, metadata={"about": About(*about)})


@dataclass(frozen=True)
class Limits:
    max_body: int = _limit(64 * MB, "of a request", "MB", "--max-body")
    memory: int = _limit(1024 * MB, "of all requests and answers that are here; more are refused", "MB", "--memory", 1)
    queue: int = _limit(256, "requests that may wait for a model", "N", "--queue", 1)
    timeout: float = _limit(60.0, "until the call of a request must have begun", "S", "--timeout")
    body_timeout: float = _limit(
        30.0, "in which a request's body must come, and its answer must be taken", "S", "--body-timeout"
    )
    connections: int = _limit(
        512, "connections of each protocol; when there are more, idle ones are closed", "N", "--connections", 1
    )
    client_share: float = _limit(
        0.75,
        "the share of what others leave that one client address may have, of connections, memory and queues; 1 behind "
        "a proxy, which makes all clients one",
        "N",
        "--client-share",
    )
    head_bytes: int = _limit(32 * KB, "of a request's first line and headers, or gRPC's metadata", "KB")
    headers: int = _limit(128, "headers of a request")
    head_seconds: float = _limit(10.0, "until these are there, or gRPC's handshake is over", "S")
    idle_seconds: float = _limit(30.0, "that a connection is kept without a request", "S")
    ahead: int = _limit(16, "requests that a client may send on a connection ahead of their answers")
    chunks: int = _limit(1024, "chunks of a body that are smaller than 1 KB on average")
    calls: int = _limit(128, "calls of gRPC at a time; each may have that part of --memory")
    json: int = _limit(16 * MB, "of JSON", "MB")
    json_rest: int = _limit(64 * KB, "of JSON without its lists of data, or of a message without tensors", "KB")
    json_depth: int = _limit(32, "lists and objects in each other, in that rest")
    number: int = _limit(512, "characters of a number in JSON, with the spaces around it")
    fields: int = _limit(16384, "fields of a message of gRPC, those of its parts included")
    outputs: int = _limit(1024, "outputs that a request names")
    rank: int = _limit(16, "axes of a tensor")
    id: int = _limit(256, "characters of a request's id")
    version: int = _limit(18, "digits of a model's version")

    @property
    def largest_message(self) -> int:
        """The most bytes of a message of gRPC, which arrive at once, before anybody can count them."""
        return min(self.max_body, self.memory // self.calls)


def described() -> list[tuple[str, Any, About]]:
    """(name, default, what it is) of each limit."""
    return [(f.name, f.default, f.metadata["about"]) for f in fields(Limits)]


def shown(value: float, about: About) -> str:
    """A limit's value for people, such as 64 MB."""
    unit = {"N": "", "S": " s"}.get(about.unit, f" {about.unit}")
    return f"{value / about.scale:g}{unit}"


@functools.lru_cache(4096)
def client(address: str) -> str:
    """Who is counted as one client: an address, or a network of IPv6 that one subscriber has (a /64)."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


class Shares:
    """An amount, such as bytes, of which each client may have a share of what the others leave: nobody can take all of
    it, and a client that is alone can have most."""

    def __init__(self, most: int, share: float) -> None:
        self.most, self.share = most, share
        self.used = 0
        self.by_client: Counter[str] = Counter()

    def fits(self, client: str, more: int) -> bool:
        own = self.by_client[client]
        return own + more <= max(self.share * (self.most - self.used + own), min(1, self.most - self.used))

    def take(self, client: str, more: int) -> None:
        self.used += more
        self.by_client[client] += more
        if not self.by_client[client]:
            del self.by_client[client]

    def give(self, client: str, less: int) -> None:
        self.take(client, -less)


class Overdrawn(Exception):
    """A client wants more than its share."""


@contextmanager
def held(shares: Shares, client: str) -> Iterator[Any]:
    """Gives a function that takes more; all of it is given back at the end. It raises Overdrawn."""
    taken = 0

    def take(more: int) -> None:
        nonlocal taken
        if not shares.fits(client, more):
            raise Overdrawn
        shares.take(client, more)
        taken += more

    try:
        yield take
    finally:
        shares.give(client, taken)
