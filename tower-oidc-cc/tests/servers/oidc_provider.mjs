// An authorization server by oidc-provider, with a data route that accepts its live tokens.
// node oidc_provider.mjs PORT SECRET LIFE FORMAT MODULES; FORMAT is `opaque` or `jwt`. It logs its port
// and each request as lines, takes `secret NEW` and `keys` from its standard input, and ends with that.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { createInterface } from 'node:readline';
import http from 'node:http';

const [port, first, life, format, modules] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(createRequire(`${modules}/`).resolve(name)));
const [{ Provider }, jose] = [await load('oidc-provider'), await load('jose')];

let secret = first;
const stored = new Map();
class Adapter {
  constructor(model) { this.model = model; }
  async find(id) {
    if (this.model !== 'Client') return stored.get(`${this.model} ${id}`);
    return id !== 'client' ? undefined : {
      client_id: id, client_secret: secret, grant_types: ['client_credentials'],
      redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_basic',
    };
  }
  async upsert(id, payload) { stored.set(`${this.model} ${id}`, payload); }
  async destroy(id) { stored.delete(`${this.model} ${id}`); }
}

let provider, answer, key;
// The keys of a provider are those of its start, so other keys are another provider over one store.
async function withNewKeys() {
  const pair = await jose.generateKeyPair('RS256', { extractable: true });
  key = pair.publicKey;
  provider = new Provider(`http://127.0.0.1:${server.address().port}`, {
    adapter: Adapter,
    jwks: { keys: [{ ...await jose.exportJWK(pair.privateKey), use: 'sig', alg: 'RS256' }] },
    features: {
      clientCredentials: { enabled: true }, devInteractions: { enabled: false }, revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => 'urn:data',
        getResourceServerInfo: () => ({ scope: '', accessTokenFormat: format, accessTokenTTL: Number(life) }),
      },
    },
  });
  answer = provider.callback();
}

const server = http.createServer(async (request, response) => {
  response.on('finish', () => console.log(`${request.method} ${request.url} ${response.statusCode}`));
  if (!request.url.startsWith('/data')) return answer(request, response);
  const value = (request.headers.authorization ?? '').replace('Bearer ', '');
  const live = format === 'jwt'
    ? await jose.jwtVerify(value, key).catch(() => undefined)
    : await provider.ClientCredentials.find(value);
  response.statusCode = live ? 200 : 401;
  response.end();
});
server.listen(Number(port), '127.0.0.1', async () => {
  await withNewKeys();
  console.log(`Listening ${server.address().port}`);
});

createInterface({ input: process.stdin }).on('line', async (line) => {
  const [command, value] = line.split(' ');
  if (command === 'secret') secret = value; else await withNewKeys();
  console.log('Done');
}).on('close', () => process.exit());
