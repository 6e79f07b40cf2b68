// An authorization server by oidc-provider, with a data route that accepts its live tokens.
// node oidc_provider.mjs PORT SECRET LIFE MODULES; it logs each request as a line, and ends with its
// standard input.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import http from 'node:http';

const [port, secret, life, modules] = process.argv.slice(2);
process.stdin.on('end', () => process.exit()).resume();
const path = createRequire(`${modules}/`).resolve('oidc-provider');
const { Provider } = await import(pathToFileURL(path));

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'client', client_secret: secret, grant_types: ['client_credentials'],
    redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_basic',
  }],
  features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
  ttl: { ClientCredentials: Number(life) },
});
const answer = provider.callback();
http.createServer(async (request, response) => {
  response.on('finish', () => console.log(`${request.method} ${request.url} ${response.statusCode}`));
  if (!request.url.startsWith('/data')) return answer(request, response);
  const value = (request.headers.authorization ?? '').replace('Bearer ', '');
  response.statusCode = await provider.ClientCredentials.find(value) ? 200 : 401;
  response.end();
}).listen(Number(port), '127.0.0.1', () => console.log('Listening'));
