"""`wandb_proxy` carries all of W&B's traffic and nobody else's, and its password stays out of every file."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.request

import pytest
import tracking_run
from wandb_stand_in import OPENER, StandIn

pytest.importorskip("wandb")


class CountingProxy(http.server.ThreadingHTTPServer):
    """Forwards every request to the stand-in server, whatever host it names."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Forward)
        self.target, self.paths, self.credentials = target, [], set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):  # a client that closes its connection is no fault
        pass


class Forward(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        path = self.path.split("/", 3)[3]
        self.server.paths.append(self.path)
        self.server.credentials.add(self.headers.get("Proxy-Authorization"))
        body = self.rfile.read(int(self.headers.get("content-length") or 0)) or None
        headers = {
            key: value for key, value in self.headers.items() if key.lower() in ("content-type", "content-encoding")
        }
        request = urllib.request.Request(
            f"{self.server.target}/{path}", data=body, headers=headers, method=self.command
        )
        with OPENER.open(request) as answer:
            data = answer.read()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = forward

    def log_message(self, *arguments):
        pass


def test_wandb_alone_goes_through_its_proxy(tmp_path):
    server = StandIn()
    proxy = CountingProxy(server.url)
    try:
        # A host that no name server knows: whatever arrives came through the proxy.
        env = tracking_run.environment(
            tmp_path / "home", **{**server.variables, "WANDB_BASE_URL": "http://wandb.invalid"}
        )
        address = f"http://user:pa55w0rd@127.0.0.1:{proxy.server_port}"
        result = tracking_run.run(
            env, root=tmp_path / "runs", rows=20, logger=["wandb", "tensorboard"], settings={"wandb_proxy": address}
        )
        assert result["lines"][0].startswith("wandb: all 20 rows") and "tensorboard: all 20 rows" in result["lines"][1]
        assert server.steps(result["run_dir"]) == [100 * i for i in range(1, 21)]
        assert all("wandb.invalid" in path or "127.0.0.1" in path for path in proxy.paths) and len(proxy.paths) > 10
        assert len(proxy.credentials) == 1 and proxy.credentials != {None}
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or b"pa55w0rd" not in path.read_bytes(), path
        assert "pa55w0rd" not in json.dumps(server.dump()) + result["out"] + result["err"]
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.close()
