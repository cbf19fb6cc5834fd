# SPDX-License-Identifier: BSD-3-Clause
"""Hands one trace to the page of Perfetto, which runs in the browser of this machine."""
import http.server
import time
import webbrowser

from ._library import lib
from .errors import StateError

PAGE = "https://ui.perfetto.dev"
PORT = 9001  # the one address of this machine that the page may fetch from


class _Handler(http.server.BaseHTTPRequestHandler):
    def _headers(self, status, length):
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", PAGE)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def do_OPTIONS(self):  # noqa: N802 - the base class' names
        self._headers(200, 0)

    def do_GET(self):  # noqa: N802
        if self.path != self.server.path:
            self.send_error(404)
            return
        self._headers(200, len(self.server.document))
        self.wfile.write(self.server.document)
        self.server.fetched = True

    def log_message(self, *_):
        pass


def perfetto(document, timeout, port=PORT):
    """Opens the page, and serves it the document until it has it. Returns whether it has."""
    try:
        server = http.server.HTTPServer(("127.0.0.1", port), _Handler)
    except OSError as problem:
        raise StateError("port %d of 127.0.0.1, from which %s reads traces, cannot be used (%s); save the "
                         "trace and drag the file into that page" % (port, PAGE, problem.strerror),
                         lib.WEFT_ERR_STATE) from problem
    with server:
        server.document, server.path, server.fetched = document.encode(), "/weft.json", False
        server.timeout = 0.2
        address = "%s/#!/?url=http://127.0.0.1:%d%s" % (PAGE, server.server_port, server.path)
        if not webbrowser.open(address):
            print("weft: no browser was found: open %s within %g s, or save the trace and drag the file into "
                  "%s" % (address, timeout, PAGE))
        end = time.monotonic() + timeout
        while not server.fetched and time.monotonic() < end:
            server.handle_request()
        return server.fetched
