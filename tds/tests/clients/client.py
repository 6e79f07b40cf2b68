"""A user of `tds backend` in Python: python3 client.py http://127.0.0.1:8080 prints what it relies on."""
import gzip
import json
import sys
import urllib.error
import urllib.request


def ask(path, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(sys.argv[1] + path, headers=headers), timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.headers, answer.read()


status, headers, body = ask("/v1/live/bus")
assert status == 200 and headers["Content-Type"].startswith("application/json"), (status, headers)
assert json.loads(body)["name"] == "bus" and headers["Age"].isdigit()
tag = headers["ETag"]
print("data")

for name, value in [("If-None-Match", tag), ("If-Modified-Since", headers["Last-Modified"])]:
    status, again, rest = ask("/v1/live/bus", **{name: value})
    assert (status, again["ETag"], rest) == (304, tag, b""), (name, status, again)
print("304")

status, part, some = ask("/v1/live/bus", Range="bytes=100-199", If_Range=headers["Last-Modified"])
assert (status, some) == (206, body[100:200]), status
assert part["Content-Range"] == f"bytes 100-199/{len(body)}", part
# A weak tag does not say that the bytes are the same (RFC 9110, section 13.1.5).
assert ask("/v1/live/bus", Range="bytes=100-199", If_Range=tag)[0] == (200 if tag.startswith("W/") else 206)
print("range")

status, coded, packed = ask("/v1/live/bus", Accept_Encoding="gzip")
assert coded["Content-Encoding"] == "gzip" and gzip.decompress(packed) == body, coded
assert coded["ETag"] != tag and ask("/v1/live/bus", Accept_Encoding="gzip", If_None_Match=coded["ETag"])[0] == 304
print("gzip")

status, headers, body = ask("/nothing")
assert status == 404 and headers["Content-Type"] == "application/problem+json", (status, headers)
problem = json.loads(body)
assert problem["kind"] == "not_found" and problem["status"] == 404 and problem["detail"], problem
print("problem")
