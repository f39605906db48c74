"""Nothing is fetched but what may be, and nothing fetched is unbounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from omni_models.media.addresses import is_public
from omni_models.media.download import Downloader
from omni_models.media.limits import Deadline, FetchPolicy, MediaLimits
from omni_wire.errors import ServiceError
from tests.support.patience import PATIENT_SECONDS

CONTENT = b"picture" * 100
Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    answers: dict[str, Answer]
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.answers.get(self.path, _status(404))(self)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _status(status: int) -> Answer:
    return lambda handler: handler.reply(status, b"x")


class Site:
    """A web server on this machine, whose host names the test chooses."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {"/ok": lambda h: h.reply(200, CONTENT)}
        self.seen: list[str] = []
        kind = type("SiteHandler", (Handler,), {"answers": self.answers, "seen": self.seen})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def url(self, path: str, host: str = "media.test") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


LIMITS = MediaLimits(max_bytes=1000)
ALLOWED = FetchPolicy(hosts=("media.test",))


def downloader(policy: FetchPolicy = ALLOWED, address: str = "127.0.0.1") -> Downloader:
    return Downloader(LIMITS, policy, lambda host, port: [address])


def fetch(url: str, policy: FetchPolicy = ALLOWED, seconds: float = 20, **more: str) -> bytes:
    return downloader(policy, **more).fetch(url, "part", Deadline(seconds))


def reason(url: str, policy: FetchPolicy = ALLOWED, seconds: float = 20, **more: str) -> str:
    with pytest.raises(ServiceError) as failure:
        fetch(url, policy, seconds, **more)
    assert str(failure.value).startswith("part: ")
    assert failure.value.details["field"] == "part"
    return failure.value.reason


def test_an_allowed_host_is_fetched_from_whatever_its_address(site: Site) -> None:
    assert fetch(site.url("/ok")) == CONTENT
    assert fetch(site.url("/ok", "a.media.test"), FetchPolicy(("*.media.test",))) == CONTENT


@pytest.mark.parametrize(
    "url",
    [
        "ftp://media.test/x",
        "http:///x",
        "http://media.test@other.test/x",
        "http://other.test/x",
        "http://media.test.other.test/x",
        "http://notmedia.test/x",
    ],
)
def test_other_urls_are_refused_without_looking_them_up(url: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host} was looked up")

    with pytest.raises(ServiceError) as refusal:
        Downloader(LIMITS, ALLOWED, resolve).fetch(url, "part", Deadline(5))
    assert refusal.value.reason == "MEDIA_REFUSED"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_a_private_address_is_refused_unless_its_host_is_allowed(address: str) -> None:
    assert not is_public(address)
    assert reason("http://any.test/x", FetchPolicy(), address=address) == "MEDIA_REFUSED"


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(address)


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    resolve = lambda host, port: ["93.184.216.34", "10.0.0.1"]  # noqa: E731
    with pytest.raises(ServiceError) as refusal:
        Downloader(LIMITS, FetchPolicy(), resolve).fetch("http://a.test/x", "part", Deadline(5))
    assert refusal.value.reason == "MEDIA_REFUSED"


def test_a_host_nobody_named_is_fetched_from_its_default_port_alone() -> None:
    assert reason("http://any.test:8080/x", FetchPolicy()) == "MEDIA_REFUSED"


def test_the_checked_address_is_the_one_connected_to(site: Site) -> None:
    answers = iter([["127.0.0.1"], ["192.0.2.1"]])
    found = Downloader(LIMITS, ALLOWED, lambda host, port: next(answers))
    assert found.fetch(site.url("/ok"), "part", Deadline(20)) == CONTENT
    assert next(answers) == ["192.0.2.1"]


def test_redirects_are_followed_and_checked_again(site: Site) -> None:
    site.answers["/moved"] = lambda h: h.reply(302, Location="/ok")
    site.answers["/away"] = lambda h: h.reply(302, Location="http://evil.test/ok")
    site.answers["/file"] = lambda h: h.reply(301, Location="file:///etc/passwd")
    site.answers["/loop"] = lambda h: h.reply(307, Location="/loop")
    assert fetch(site.url("/moved")) == CONTENT
    assert reason(site.url("/away")) == "MEDIA_REFUSED"
    assert reason(site.url("/file")) == "MEDIA_REFUSED"
    site.seen.clear()
    assert reason(site.url("/loop")) == "MEDIA_REFUSED"
    assert len(site.seen) == 6


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, "INVALID_MEDIA"),
        (403, "INVALID_MEDIA"),
        (204, "INVALID_MEDIA"),
        (429, "MEDIA_UNREACHABLE"),
        (503, "MEDIA_UNREACHABLE"),
    ],
)
def test_answers_without_content_are_told_apart_by_what_helps(
    site: Site, status: int, expected: str
) -> None:
    site.answers["/x"] = _status(status)
    assert reason(site.url("/x")) == expected


def test_size_is_bounded_with_and_without_a_stated_length(site: Site) -> None:
    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 500)
        except OSError:
            return

    site.answers["/stated"] = lambda h: h.reply(200, b"", Content_Length="1001")
    site.answers["/endless"] = endless
    assert reason(site.url("/stated")) == "MEDIA_TOO_LARGE"
    assert reason(site.url("/endless")) == "MEDIA_TOO_LARGE"


def test_a_body_that_breaks_off_or_is_compressed_is_no_content(site: Site) -> None:
    site.answers["/short"] = lambda h: h.reply(200, b"abc", Content_Length="900")
    site.answers["/gzip"] = lambda h: h.reply(200, b"abc", Content_Encoding="gzip")
    assert reason(site.url("/short")) == "MEDIA_UNREACHABLE"
    assert reason(site.url("/gzip")) == "INVALID_MEDIA"


@pytest.mark.parametrize("path", ["/silent", "/dripping"])
def test_time_is_bounded_whatever_the_server_does(site: Site, path: str) -> None:
    left = threading.Event()

    def silent(handler: Handler) -> None:
        left.wait(PATIENT_SECONDS)

    def dripping(handler: Handler) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not left.wait(0.05):
                handler.wfile.write(b"X-Drip: 1\r\n")
        except OSError:
            return

    site.answers |= {"/silent": silent, "/dripping": dripping}
    try:
        assert reason(site.url(path), seconds=0.4) == "MEDIA_TIMEOUT"
    finally:
        left.set()


def test_a_port_where_nobody_listens_is_unreachable(site: Site) -> None:
    # The server listens on one address of the loopback network alone.
    assert reason(site.url("/ok"), address="127.0.0.2") == "MEDIA_UNREACHABLE"
