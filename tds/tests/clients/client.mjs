// A user of `tds backend` in JavaScript, in node or on a page of another origin. In node:
// node client.mjs http://127.0.0.1:8080 prints what it relies on.

function expect(is, ...shown) {
  if (!is) throw new Error(shown.map((it) => JSON.stringify(it) ?? String(it)).join(" "));
}

export async function check(base) {
  const seen = [];
  const ask = (path, headers = {}) => fetch(base + path, { headers, cache: "no-store" });

  let answer = await ask("/v1/live/bus");
  const [tag, age] = ["etag", "age"].map((name) => answer.headers.get(name));
  const body = await answer.text();
  expect(answer.status === 200 && tag && age !== null, answer.status, tag, age);
  expect(JSON.parse(body).name === "bus", body);
  seen.push("data");

  answer = await ask("/v1/live/bus", { "If-None-Match": tag });
  expect(answer.status === 304 && (await answer.text()) === "", answer.status);
  seen.push("304");

  answer = await ask("/v1/live/bus", { Range: "bytes=100-199" });
  expect(answer.status === 206 && (await answer.text()) === body.slice(100, 200), answer.status);
  seen.push("range");

  answer = await ask("/nothing");
  expect(answer.headers.get("content-type") === "application/problem+json", answer.status);
  const problem = await answer.json();
  expect(answer.status === 404 && problem.kind === "not_found" && problem.detail, problem);
  seen.push("problem");
  return seen;
}

if (globalThis.process?.argv[2]) console.log((await check(process.argv[2])).join("\n"));
