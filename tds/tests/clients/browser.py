"""Chromium for tests: python3 browser.py [OPTION...] URL EXPRESSION... opens a page, and for each expression waits until its value is
true, and prints that value as JSON. Options: --dark, --width=PIXELS, --no-scripts, --screenshot=FILE, --profile=FOLDER."""
import base64
import json
import os
import subprocess
import sys
import time

options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
url, *expressions = [word for word in sys.argv[1:] if not word.startswith("--")]
(its_in, ours_out), (ours_in, its_out) = os.pipe(), os.pipe()
command = "chromium --headless --no-sandbox --disable-gpu --no-proxy-server --hide-scrollbars --remote-debugging-pipe"
if "profile" in options:
    command += " --user-data-dir=" + options["profile"]
browser = subprocess.Popen(
    ["sh", "-c", f"exec {command} 3<&{its_in} 4>&{its_out}"], pass_fds=(its_in, its_out), stderr=subprocess.DEVNULL
)
os.close(its_in)
os.close(its_out)
unread, count, session = b"", 0, None


def call(method, **params):
    global unread, count
    count += 1
    message = {"id": count, "method": method, "params": params}
    if session:
        message["sessionId"] = session
    os.write(ours_out, json.dumps(message).encode() + b"\0")
    while True:
        while b"\0" not in unread:
            read = os.read(ours_in, 1 << 20)
            if not read:
                sys.exit("chromium has ended")
            unread += read
        text, _, unread = unread.partition(b"\0")
        answer = json.loads(text)
        if answer.get("id") == count:
            return answer.get("result", {})


try:
    target = call("Target.createTarget", url="about:blank")["targetId"]
    session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    width, height = int(options.get("width", 1280)), int(options.get("height", 900))
    call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    scheme = "dark" if "dark" in options else "light"
    call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    if "no-scripts" in options:
        call("Emulation.setScriptExecutionDisabled", value=True)
    call("Page.navigate", url=url)
    for expression in expressions:
        for _ in range(1_200):
            # It fails while the page is not there, or has just been reloaded. Half a page is not read.
            whole = f"document.readyState == 'complete' && ({expression})"
            result = call("Runtime.evaluate", expression=whole, awaitPromise=True, returnByValue=True)
            if "exceptionDetails" not in result and result.get("result", {}).get("value"):
                break
            time.sleep(0.05)
        else:
            sys.exit(f"{expression} is not true in a minute: {json.dumps(result)}")
        print(json.dumps(result["result"]["value"]), flush=True)
    if "screenshot" in options:
        picture = call("Page.captureScreenshot", format="png", captureBeyondViewport="full" in options)["data"]
        with open(options["screenshot"], "wb") as file:
            file.write(base64.b64decode(picture))
finally:
    browser.kill()
    browser.wait()
