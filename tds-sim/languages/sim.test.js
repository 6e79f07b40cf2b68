import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

let program, sim;

beforeAll(async () => {
  program = spawn(process.env.TDS_SIM ?? "tds-sim", { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(createInterface(program.stdout), "line");
  sim = JSON.parse(line);
});
afterAll(() => program.kill());
beforeEach(() => control("/reset", {}));

async function control(path, fields) {
  const body = JSON.stringify(fields);
  const headers = { "content-type": "application/json" };
  const done = await fetch(sim.admin_url + path, { method: "POST", headers, body });
  if (!done.ok) throw new Error(await done.text());
}

async function token() {
  const url = `${sim.auth_url}/auth/realms/ServiceConnect/protocol/openid-connect/token`;
  const { client_id, client_secret } = sim;
  const body = new URLSearchParams({ grant_type: "client_credentials", client_id, client_secret });
  return (await (await fetch(url, { method: "POST", body })).json()).access_token;
}

function get(token) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  return fetch(`${sim.base_url}/v1/live/bus`, { headers });
}

test("each error, and what the service saw", async () => {
  const good = await token();
  expect((await (await get(good)).json()).name).toBe("bus");
  expect(await (await get()).json()).toEqual({ message: "no Authorization header found" });
  expect(await (await get("wrong")).json()).toEqual({ message: "invalid token" });
  await control("/roles", { role: "none" });
  expect(await (await get(await token())).text()).toContain("Missing required realm role");

  for (const [setting, status] of [[{ connections: 0 }, 416], [{ rate: 0 }, 423], [{ quota: "0/60s" }, 429]]) {
    await control("/set", setting);
    expect((await get(good)).status).toBe(status);
    await control("/reset", { part: "settings" });
  }

  await control("/faults", { fault: "503@/v1/live/*" });
  expect((await get(good)).status).toBe(503);
  await control("/faults", { fault: "reset-body" });
  await expect(get(good).then((answer) => answer.text())).rejects.toThrow();

  const ledger = await fetch(`${sim.admin_url}/ledger?path=/v1/live/bus&wait=9`);
  const { summary, arrivals } = await ledger.json();
  expect(summary.token_posts).toBe(2);
  expect(arrivals.map((call) => call.status)).toEqual([200, 401, 401, 401, 416, 423, 429, 503, 200]);
  expect(arrivals[0].headers.authorization).toBe("Bearer ***");
});
