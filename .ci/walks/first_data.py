"""A program in Python without any package: it starts the simulated service, and gets data by `tds`."""

import json
import os
import subprocess
import sys

with subprocess.Popen(["tds-sim"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as service:
    told = json.loads(service.stdout.readline())
    settings = {"TDS_" + name.upper(): told[name] for name in ("auth_url", "base_url", "client_id", "client_secret")}
    try:
        got = subprocess.run(["tds", "get", "/v1/live/bus"], env=os.environ | settings, stdout=subprocess.PIPE, timeout=60)
    finally:
        service.terminate()
if got.returncode != 0:
    sys.exit("tds ended with %d" % got.returncode)
bus = json.loads(got.stdout)
print(bus["name"], "is", bus["status"])
