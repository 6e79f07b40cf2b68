"""An authorization server by Authlib and Flask, with a data route that accepts its live tokens.

python authlib_server.py PORT SECRET LIFE; it logs each request as a line, and ends with its standard input.
"""
import os
import sys
import threading
import time

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler, make_server

port, secret, life = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
app = Flask(__name__)
app.config["OAUTH2_TOKEN_EXPIRES_IN"] = {"client_credentials": life}
ends = {}


class Client(ClientMixin):
    client_id = "client"

    def get_client_id(self):
        return self.client_id

    def get_allowed_scope(self, scope):
        return ""

    def check_client_secret(self, value):
        return value == secret

    def check_endpoint_auth_method(self, method, endpoint):
        return True

    def check_grant_type(self, grant_type):
        return grant_type == "client_credentials"


class Grant(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]


def save(token, _request):
    ends[token["access_token"]] = time.time() + token["expires_in"]


server = AuthorizationServer(app, lambda name: Client() if name == "client" else None, save)
server.register_grant(Grant)


@app.post("/token")
def token():
    return server.create_token_response()


@app.get("/data")
def data():
    value = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return "", 200 if ends.get(value, 0) > time.time() else 401


class Log(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, code="-", size="-"):
        # One write, so that the lines of two threads do not mix.
        sys.stdout.write(f"{self.command} {self.path} {int(code)}\n")
        sys.stdout.flush()


listener = make_server("127.0.0.1", port, app, threaded=True, request_handler=Log)
threading.Thread(target=listener.serve_forever, daemon=True).start()
print("Listening", flush=True)
sys.stdin.read()
