// Development server: serves dist/ and forwards /api to the Unix socket of a daemon. Usage: node dev/server.mjs
// SOCKET [PORT]. It listens on loopback only, because every client acts with the rights of this process.
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { extname, join, normalize } from 'node:path';

const socketPath = process.argv[2] ?? process.env.BLOCKYARD_SOCKET ?? '/run/blockyard/blockyard.sock';
const port = Number(process.argv[3] ?? 8088);
const dist = new URL('../dist/', import.meta.url).pathname;
const kinds = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
  '.json': 'application/json',
};
// Content Security Policy of the daemon, so that violations show up in development.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

function pass(from, to) {
  const { host: _host, ...headers } = from.headers;
  const onward = request(
    { socketPath, path: from.url, method: from.method, headers: { ...headers, host: 'localhost' } },
    (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      answer.pipe(to);
    },
  );
  onward.on('error', (error) => {
    if (to.headersSent) return to.destroy();
    to.writeHead(503, { 'content-type': 'application/problem+json' });
    to.end(
      JSON.stringify({
        status: 503,
        code: 'BY-1808',
        message: `no daemon answers at ${socketPath}: ${error.code}`,
        hint: 'start it with blockyard serve',
      }),
    );
  });
  to.on('close', () => onward.destroy());
  from.pipe(onward);
}

// Cross-origin requests and DNS rebinding would otherwise act as root.
const own = new Set([`127.0.0.1:${port}`, `localhost:${port}`]);
const isOurs = ({ host, origin, 'sec-fetch-site': site }) =>
  own.has(host) &&
  (origin === undefined || own.has(origin.replace('http://', ''))) &&
  (site === undefined || site === 'same-origin' || site === 'none');

createServer((from, to) => {
  if (!isOurs(from.headers)) {
    to.writeHead(403);
    return to.end('open it at its own address\n');
  }
  if (from.url.startsWith('/api/')) return pass(from, to);
  const path = normalize(new URL(from.url, 'http://localhost').pathname);
  let file = join(dist, path);
  if (!file.startsWith(dist) || !existsSync(file) || statSync(file).isDirectory()) file = join(dist, 'index.html');
  to.writeHead(200, {
    'content-type': kinds[extname(file)] ?? 'application/octet-stream',
    'content-security-policy': policy,
  });
  createReadStream(file).pipe(to);
}).listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}/ speaks to ${socketPath}`));
