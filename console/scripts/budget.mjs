// Fails if the built console exceeds its size budget: first load and total, compressed.
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const dist = new URL('../dist/', import.meta.url).pathname;
const FIRST_LOAD_BYTES_MAX = 120_000;
const WHOLE_BYTES_MAX = 300_000;

const files = (folder) =>
  readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
const packed = (path) =>
  path.endsWith('.woff2') ? statSync(path).size : gzipSync(readFileSync(path), { level: 9 }).length;

const all = files(dist).map((path) => ({ path: path.slice(dist.length), bytes: packed(path) }));
const page = readFileSync(join(dist, 'index.html'), 'utf8');
const first = all.filter(({ path }) => path === 'index.html' || page.includes(`/${path}"`));
const sum = (list) => list.reduce((total, { bytes }) => total + bytes, 0);
const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;

for (const { path, bytes } of all)
  console.log(`${kB(bytes).padStart(10)}  ${path}${first.some((f) => f.path === path) ? '  (first load)' : ''}`);
console.log(
  `first load ${kB(sum(first))} of ${kB(FIRST_LOAD_BYTES_MAX)}, whole ${kB(sum(all))} of ${kB(WHOLE_BYTES_MAX)}, compressed`,
);
if (sum(first) > FIRST_LOAD_BYTES_MAX || sum(all) > WHOLE_BYTES_MAX) {
  console.error('the console is larger than its budget');
  process.exit(1);
}
if (/<script(?![^>]*src=)|style=|\son[a-z]+=/.test(page)) {
  console.error('index.html has something inline, which the content policy forbids');
  process.exit(1);
}
