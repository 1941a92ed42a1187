"""Stands where a server's interpreter does: answers /health like vLLM, or fails as told by STUB."""

import http.server
import os
import sys
import time

how = os.environ.get("STUB", "")
if how == "dies":
    print("ValueError: No supported config format found in /nowhere")
    sys.exit(3)
if how == "hangs":
    time.sleep(600)


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


address = (sys.argv[sys.argv.index("--host") + 1], int(sys.argv[sys.argv.index("--port") + 1]))
http.server.HTTPServer(address, Health).serve_forever()
