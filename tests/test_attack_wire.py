"""Bytes on the wire that no browser sends: the server answers or hangs up, goes on, and logs one line for each."""

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from attack_server import PATIENCE_SECONDS, Server, serving

pytestmark = pytest.mark.slow

HOST = b"Host: 127.0.0.1\r\nConnection: close\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
STYLE = b"GET /static/style.css HTTP/1.1\r\n" + HOST
JSON = b"POST /api/traces HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
REQUESTS = {
    "nothing": b"",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "a version of the future": b"GET / HTTP/9.9\r\n" + HOST + b"\r\n",
    "no host": b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    "two hosts": GET + b"Host: evil.example\r\n\r\n",
    "an absolute address": b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path upwards": b"GET /static/../../../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    "an encoded path upwards": b"GET /static/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the path": b"GET /a\0b HTTP/1.1\r\n" + HOST + b"\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "half an escape": b"GET /traces/%e2%82 HTTP/1.1\r\n" + HOST + b"\r\n",
    "line ends in the path": b"GET /a%0d%0aX-Injected:%201 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a long path": b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a long header": GET + b"X-Long: " + b"a" * 60_000 + b"\r\n\r\n",
    "many headers": GET + b"".join(b"X-%d: a\r\n" % n for n in range(3000)) + b"\r\n",
    "bytes in headers": GET + b"HX-Request: \xff\r\nIf-None-Match: \xfe\r\nCookie: \xff=\xff\r\n\r\n",
    "a header that is folded": GET + b"X-A: a\r\n b\r\n\r\n",
    "a header without a name": GET + b": a\r\n\r\n",
    "odd headers": GET + b"Accept-Encoding: gzip;q=x,,;\r\nX-Request-Id: \x7f\r\nAccept: \x80\r\n\r\n",
    "an odd range of a file": STYLE + b"Range: bytes=-9999999999999999999999\r\n\r\n",
    "an odd date": STYLE + b"If-Modified-Since: 99 Foo 99999\r\n\r\n",
    "forged proxy headers": GET + b"X-Forwarded-For: \x00,a\r\nX-Forwarded-Proto: javascript\r\n\r\n",
    "an unknown method": b"BREW /traces HTTP/1.1\r\n" + HOST + b"\r\n",
    "TRACE": b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a length that is no number": JSON + b"Content-Length: ten\r\n\r\n{}",
    "a length below 0": JSON + b"Content-Length: -1\r\n\r\n{}",
    "a length of 30 digits": JSON + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}",
    "two lengths": JSON + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}",
    "a length and chunks": JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk of no size": JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk of 2^64": JSON + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "an unknown coding": JSON + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "a body that does not come": JSON + b"Content-Length: 100\r\n\r\n{",
    "a form that does not come": b"POST /record HTTP/1.1\r\n" + HOST
    + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 900\r\n\r\n--x\r\n",
    "a file that does not come": b"POST /api/uploads HTTP/1.1\r\n" + HOST
    + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 900\r\n\r\n--x\r\n",
    "a body of a reading": GET + b"Content-Length: 3\r\n\r\nabc",
    "another request behind": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\0\0\0\0",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a web socket": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: eHNzcHJvYmV4c3Nwcm9iZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
}  # fmt: skip
"""What is sent; then the sender says that no more comes."""
LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+ (debug|info|warning|error) [\w.]+: .*|INFO: .*|WARNING: .*")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("wire"), log_level="info") as server:
        yield server
        _, complaints = server.stop()
        assert "Traceback" not in complaints
        for line in complaints.splitlines():
            assert LINE.fullmatch(line), line
            assert line.isprintable(), line


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_is_no_request_is_answered_or_cut(server: Server, kind: str) -> None:
    answer = sent(server, REQUESTS[kind])
    if answer:
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
        assert status, answer[:200]
        assert int(status[1]) < 500, answer[:500]
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert b"x-injected" not in head
        assert b"root:" not in answer
    assert server.client.get("/healthz").json()["status"] == "ok"


def test_hundreds_who_say_nothing_keep_nobody_from_asking(server: Server) -> None:
    address = urlsplit(str(server.client.base_url))
    silent = [socket.create_connection((address.hostname, address.port), PATIENCE_SECONDS) for _ in range(300)]
    try:
        for number, each in enumerate(silent):
            each.sendall(b"GET / HT" if number % 2 else JSON + b"Content-Length: 10\r\n\r\n{")
        assert server.client.get("/healthz").status_code == 200
        assert server.client.get("/").status_code == 200
    finally:
        for each in silent:
            each.close()


def sent(server: Server, content: bytes) -> bytes:
    """What the server sends back before it hangs up."""
    address = urlsplit(str(server.client.base_url))
    received = b""
    with socket.create_connection((address.hostname, address.port), PATIENCE_SECONDS) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    return received
