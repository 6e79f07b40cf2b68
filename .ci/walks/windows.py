"""A person at Windows, who is wine here: first data, files, feeds and users, each checked by what the service saw."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request


def start(program, *arguments, **options):
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.DEVNULL)
    return subprocess.Popen(["wine", program + ".exe", *arguments], stdin=subprocess.DEVNULL, text=True, **options)


def run(code, *arguments):
    """Runs `tds`, which has to end with `code`, and returns what it said."""
    ended = start("tds", *arguments, stderr=subprocess.PIPE, env=env)
    out, error = ended.communicate(timeout=300)
    if ended.returncode != code:
        sys.exit("tds %s ended with %d, not %d:\n%s%s" % (" ".join(arguments), ended.returncode, code, out, error))
    return out, error


def check(holds, what):
    if not holds:
        sys.exit("refused: " + what)
    print("ok:", what, flush=True)


def asks(path, **form):
    data = "&".join("%s=%s" % it for it in form.items()).encode() or None
    with urllib.request.urlopen(told["admin_url"] + path, data, timeout=30) as answer:
        return answer.read().decode()


def calls(path, **more):
    query = "&".join(["path=" + path, *("%s=%s" % it for it in more.items())])
    return json.loads(asks("/ledger?" + query))["arrivals"]


def summary():
    return json.loads(asks("/summary"))


quick = start("quickstart")
said = quick.communicate(timeout=300)[0]
check(quick.returncode == 0, "quickstart: " + said.strip().splitlines()[-1])

service = start("tds-sim", "--admin-port", "0")
told = json.loads(service.stdout.readline())
names = ("auth_url", "base_url", "client_id", "client_secret")
env = os.environ | {"TDS_" + name.upper(): told[name] for name in names} | {"no_proxy": "127.0.0.1"}
try:
    run(0, "check", "/v1/live/bus")
    first = run(0, "get", "/v1/live/bus")[0]
    posts = summary()["token_posts"]
    second = run(0, "get", "/v1/live/metro")[0]
    check('"bus"' in first and '"metro"' in second, "get prints data")
    check(summary()["token_posts"] == posts, "the second run of get has the token of the first")

    files = 400
    pathlib.Path("list.txt").write_bytes(b"/v1/history/{1..%d}?bytes=2000&rate=4000\tdays/{}.bin\r\n" % files)
    bulk = start("tds", "bulk", "--list", "list.txt", "--out", "out", stderr=subprocess.PIPE, env=env)
    calls("/v1/history/*", wait=60, timeout="60s")
    second_run = run(2, "bulk", "--list", "list.txt", "--out", "out")[1]
    check("another" in second_run or "in use" in second_run, "two runs in one folder: " + second_run.strip())
    bulk.send_signal(signal.SIGINT)
    bulk.communicate(timeout=60)
    whole = len(list(pathlib.Path("out/days").glob("*.bin")))
    check(bulk.returncode == 1 and 0 < whole < files, "Ctrl-C ends bulk with 1 after %d files" % whole)
    run(0, "bulk", "--list", "list.txt", "--out", "out")
    made = list(pathlib.Path("out/days").glob("*.bin"))
    check(len(made) == files and all(it.stat().st_size == 2000 for it in made), "bulk resumes, and all files are there")
    check(len(calls("/v1/history/*", status=200)) < files + 60, "files that are whole are not fetched again")

    for name in ("con", "NUL", "aux.json", "x?.json", "a:b.json", "dot.", "sp ", "sub/com1.txt"):
        pathlib.Path("one.txt").write_text("/v1/live/fine\tfine.json\n/v1/live/bus\t%s\n" % name)
        error = run(2, "bulk", "--list", "one.txt", "--out", "names")[1]
        check("line 2" in error or ":2" in error, "the name %r is refused: %s" % (name, error.strip()))
    check(not pathlib.Path("names/fine.json").exists(), "a list with such a name changes nothing")
    pathlib.Path("derived.txt").write_text("/v1/live/bus?$filter=a:b*c\n/v1/live/con\n/v1/live/sub\tsub/dir/file.json\n")
    run(0, "bulk", "--list", "derived.txt", "--out", "derived")
    derived = sorted(str(it.relative_to("derived")) for it in pathlib.Path("derived").rglob("*") if it.is_file() and not it.name.startswith("."))
    check(len(derived) == 3 and "sub/dir/file.json" in derived, "names made from paths are legal: %s" % derived)

    run(0, "get", "/v1/live/bus", "--out", "held.json")
    before = pathlib.Path("held.json").read_bytes()
    # A shell gives the file to a program as its input, and so holds it open.
    holder = subprocess.Popen(["wine", "cmd", "/c", "tds-sim.exe < held.json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    holder.stdout.readline()
    error = run(1, "get", "/v1/live/metro", "--out", "held.json")[1]
    holder.terminate()
    check("held.json" in error and pathlib.Path("held.json").read_bytes() == before, "a file that is open stays whole: " + error.strip())

    pathlib.Path("feeds.txt").write_text("/v1/live/bus\tbus.json\n")
    out = run(0, "poll", "--list", "feeds.txt", "--every", "1s", "--rounds", "3", "--out", "feeds")[0]
    check("bus" in out and pathlib.Path("feeds/bus.json").exists(), "poll writes its feed")

    pathlib.Path("resources.txt").write_text("/v1/live/bus\n")
    backend = start("tds", "backend", "--list", "resources.txt", "--listen", "127.0.0.1:0", stderr=subprocess.PIPE, env=env)
    address = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in backend.stderr)))[0]
    curl = subprocess.run(["curl", "--silent", "--fail", address + "/v1/live/bus"], stdout=subprocess.PIPE, timeout=60, text=True)
    check('"bus"' in curl.stdout, "backend serves curl")
    backend.send_signal(signal.SIGINT)
    backend.communicate(timeout=60)
    check(backend.returncode == 0, "Ctrl-C ends backend with 0")

    by_status = summary()["by_status"]
    check("423" not in by_status and "416" not in by_status, "no call was refused: %s" % by_status)
finally:
    service.terminate()
