"""A stand-in for SwanLab's server on loopback, as swanlab 0.10.3 speaks to it: login, project, run, metrics, media."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SwanlabStandIn:
    """`runs`: by id, what each has been sent: its description, `scalars` {(key, step): value} and `twice`, what came
    again; media, profile and final state."""

    def __init__(self) -> None:
        self.projects: set[str] = set()
        self.runs: dict[str, dict[str, Any]] = {}
        self.blobs: dict[str, int] = {}
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"stand_in": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.variables = {"SWANLAB_API_HOST": f"http://127.0.0.1:{self._server.server_port}", "SWANLAB_API_KEY": "k" * 21}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, parts: list[str], body: Any) -> tuple[int, Any]:
        match method, parts:
            case "POST", ["login", "api_key"]:
                user = {"username": "local"}
                return 200, {"sid": "session", "expiredAt": "2999-01-01T00:00:00.000Z", "userInfo": user}
            case "POST", ["projects", _]:
                self.projects.add(body["name"])
                return 201, {}
            case "GET", ["project", user, name]:
                if name not in self.projects:
                    return 404, {"code": "404", "message": "Not Found"}
                return 200, {"cuid": f"p-{name}", "name": name, "path": f"/{user}/{name}", "version": 1,
                             "visibility": "PRIVATE", "group": {"username": user}, "_count": {"experiments": 0}}
            case "POST", ["project", _, _, "experiment"]:
                known = body["cuid"] in self.runs
                empty = {"scalars": {}, "twice": 0, "media": [], "profile": {}, "state": None}
                self.runs.setdefault(body["cuid"], empty).update(about=body)
                created = self.runs[body["cuid"]].setdefault("created", body["createdAt"])
                about = {"cuid": body["cuid"], "slug": body["cuid"], "name": body["name"], "createdAt": created}
                return 200 if known else 201, about
            case "GET", ["house", "metrics", "summaries", _, run]:
                last: dict[str, int] = {}
                for key, step in self.runs[run]["scalars"]:
                    last[key] = max(step, last.get(key, step))
                return 200, {"log": [], "media": [], "scalar": [{"key": key, "step": last[key]} for key in last]}
            case "POST", ["house", "metrics"]:
                run = self.runs[body["experimentId"]]
                for metric in body["metrics"]:
                    if body["type"] == "scalar":
                        place = metric["key"], metric["index"]
                        run["twice"] += place in run["scalars"]
                        run["scalars"][place] = metric["data"]
                    elif body["type"] == "media":
                        run["media"].append(metric)
                return 200, {}
            case "POST", ["resources", "presigned", "put"]:
                host = self.variables["SWANLAB_API_HOST"]
                return 200, {"urls": [f"{host}/put/{body['experimentId']}/{path}" for path in body["paths"]]}
            case "PUT", ["project", _, _, "runs", run, "profile"]:
                self.runs[run]["profile"].update(body)
                return 200, {}
            case "PUT", ["project", _, _, "runs", run, "state"]:
                self.runs[run]["state"] = body["state"]
                return 200, {}
        return 200, {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: SwanlabStandIn

    def log_message(self, *_: Any) -> None:
        pass

    def _do(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = self.path.partition("?")[0].strip("/").removeprefix("api/").split("/")
        with self.stand_in.lock:
            if parts[0] == "put":
                self.stand_in.blobs[self.path] = len(data)
                code, answer = 200, {}
            else:
                code, answer = self.stand_in.answer(self.command, parts, json.loads(data) if data else None)
        text = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = _do
