"""An authorization server by Authlib and Flask, with a data route that accepts its live tokens.

python authlib_server.py PORT SECRET LIFE FORMAT; FORMAT is `opaque` or `jwt`. It logs its port and
each request as lines, takes `secret NEW` and `keys` from its standard input, and ends with that.
"""
import os
import sys
import threading
import time

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.jose import JsonWebKey, jwt
from authlib.jose.errors import JoseError
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7009 import RevocationEndpoint
from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler, make_server

port, secret, life, form = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
app = Flask(__name__)
app.config["OAUTH2_TOKEN_EXPIRES_IN"] = {"client_credentials": life}
ends = {}
key = None


def new_keys():
    global key
    key = JsonWebKey.generate_key("RSA", 2048, is_private=True)


def signed(client, grant_type, user, scope):
    return jwt.encode({"alg": "RS256"}, {"exp": int(time.time()) + life}, key).decode()


new_keys()
if form == "jwt":
    app.config["OAUTH2_ACCESS_TOKEN_GENERATOR"] = signed


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


class Token:
    def __init__(self, value):
        self.value = value

    def check_client(self, client):
        return True


class Revocation(RevocationEndpoint):
    def query_token(self, value, hint):
        return Token(value) if value in ends else None

    def revoke_token(self, token, _request):
        del ends[token.value]


server = AuthorizationServer(app, lambda name: Client() if name == "client" else None, save)
server.register_grant(Grant)
server.register_endpoint(Revocation)


@app.post("/token")
def token():
    return server.create_token_response()


@app.post("/token/revocation")
def revocation():
    return server.create_endpoint_response("revocation")


def is_live(value):
    if form == "opaque":
        return ends.get(value, 0) > time.time()
    try:
        jwt.decode(value, key).validate()
        return True
    except (JoseError, ValueError):
        return False


@app.get("/data")
def data():
    value = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return "", 200 if is_live(value) else 401


class Log(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, code="-", size="-"):
        # One write, so that the lines of two threads do not mix.
        sys.stdout.write(f"{self.command} {self.path} {int(code)}\n")
        sys.stdout.flush()


listener = make_server("127.0.0.1", port, app, threaded=True, request_handler=Log)
threading.Thread(target=listener.serve_forever, daemon=True).start()
print("Listening", listener.server_port, flush=True)
for line in sys.stdin:
    if line.startswith("secret "):
        secret = line.split()[1]
    else:
        new_keys()
    # One write, as above.
    sys.stdout.write("Done\n")
    sys.stdout.flush()
