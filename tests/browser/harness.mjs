// What every test needs: a browser, a page that complains, the command line and other people's initiators.
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { promisify } from 'node:util';
import { AxeBuilder } from '@axe-core/playwright';
import { chromium } from 'playwright-core';

export const { BLOCKYARD, SOCKET, PORTAL, SCRATCH, ADDRESS, WEB } = process.env;
export const shots = new URL('shots/', import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: process.getuid() === 0 ? ['--no-sandbox'] : [] });

/** What browsers complained about, on any page; a test run with one has failed. */
export const complaints = [];

const dist = new URL('../../console/dist/', import.meta.url).pathname;
const fresh = (path) => (path.includes('.') && existsSync(dist + path.slice(1)) ? dist + path.slice(1) : `${dist}index.html`);

/** A new browser window. What is not there in a daemon without users is no complaint. */
export async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  // FRESH=1: the console as it is built now, and not as it was built into the program.
  if (WEB && process.env.FRESH) await page.route((url) => url.href.startsWith(WEB) && !url.pathname.startsWith('/api/'), (to) => to.fulfill({ path: fresh(new URL(to.request().url()).pathname) }));
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error.message}`));
  page.on('console', (message) => {
    const asked = message.location().url ?? '';
    if (message.type() === 'error' && !/\/api\/v1\/(session|users|tokens|audit)/.test(asked) && !/status of 4(0[0-49]|22)/.test(message.text())) complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on('request', (request) => { if (!request.url().startsWith(ADDRESS) && !(WEB && request.url().startsWith(WEB)) && !request.url().startsWith('blob:')) complaints.push(`asked elsewhere: ${request.url()}`); });
  return page;
}

export async function go(page, path) {
  await page.goto(`${ADDRESS}#/${path}`);
  await page.locator('#page-title').waitFor();
}

/** What the command line says, as JSON. */
export function cli(...words) {
  const text = execFileSync(BLOCKYARD, ['--socket', SOCKET, '-o', 'json', ...words], { encoding: 'utf8' });
  const answer = JSON.parse(text);
  return answer[Object.keys(answer).find((key) => !['schema', 'total', 'next'].includes(key))];
}

const run = promisify(execFile);

/** qemu's own initiator does this to the unit. Throws when a pattern is not there. */
export async function qemuIo(iqn, initiator, ...commands) {
  const image = `driver=raw,file.driver=iscsi,file.transport=tcp,file.portal=${PORTAL},file.target=${iqn},file.lun=0,file.initiator-name=${initiator}`;
  const { stdout } = await run('qemu-io', ['--image-opts', image, ...commands.flatMap((command) => ['-c', command])], { timeout: 30_000 });
  if (/verification failed|error/i.test(stdout)) throw new Error(stdout);
}

/** A stranger tries to log in. */
export async function knock(initiator) {
  await run('iscsi-ls', ['-i', initiator, `iscsi://${PORTAL}/`], { timeout: 10_000 }).catch(() => {});
}

export function same(is, wanted, what) {
  if (is !== wanted) throw new Error(`${what}: ${JSON.stringify(is)}, and not ${JSON.stringify(wanted)}`);
}

/** Waits until this is so. */
export async function until(what, holds, seconds = 30) {
  for (let i = 0; i < seconds * 4; i += 1) {
    if (await holds()) return;
    await new Promise((then) => setTimeout(then, 250));
  }
  throw new Error(`it was never so that ${what}`);
}

/** No rule of WCAG 2.2 A and AA, nor of good practice, is broken that axe can judge. */
export async function accessible(page, name) {
  const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze();
  if (violations.length) throw new Error(`${name}: ${violations.map(({ id, help, nodes }) => `${id} (${help}): ${nodes.slice(0, 3).map((node) => node.target.join(' ')).join(', ')}`).join('; ')}`);
}

export async function fits(page, name) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (over > 0) throw new Error(`${name} is ${over} pixels wider than its window`);
}

/** How long a page takes from its address to the frame that shows the text, as the browser itself measures it: what is spent on telling the driver is not the console's. */
export const opens = (other, path, text) => other.evaluate(([path, text]) => new Promise((done) => {
  const begun = performance.now();
  const title = document.getElementById('page-title');
  const goesOn = location.hash.split('?')[0] === `#/${path}`.split('?')[0];
  const isThere = () => (goesOn || document.getElementById('page-title') !== title) && [...document.querySelectorAll('main :is(a, td, h1, h2, b, span)')].some((one) => one.textContent.trim() === text && one.getBoundingClientRect().height > 0);
  const seen = new MutationObserver(() => {
    if (!isThere()) return;
    seen.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(Math.round(performance.now() - begun))));
  });
  seen.observe(document.body, { childList: true, subtree: true, characterData: true });
  location.hash = `#/${path}`;
}), [path, text]);

/** Each of the pages, as its path and a text that it shows, is there within so many milliseconds. */
export async function quick(page, paths, within) {
  const slow = [];
  for (const [path, text] of paths) {
    // The best of three: what else the machine does is not the console's.
    let took = Infinity;
    for (let i = 0; i < 3 && took > within; i += 1) {
      if (i) { await go(page, ''); await page.reload(); await page.getByText('Capacity').waitFor(); }
      took = Math.min(took, await opens(page, path, text));
    }
    console.log(`        ${path || 'dashboard'} in ${took} ms, ${await page.locator('*').count()} elements`);
    if (took > within) slow.push(`${path} took ${took} ms`);
    await page.screenshot({ path: `${shots}crowd-${path.split('?')[0].replaceAll('/', '-')}.png` });
  }
  if (slow.length) throw new Error(slow.join(', '));
}

let failed = 0;
/** One test. What comes after it runs all the same. */
export async function test(name, body) {
  const begun = Date.now();
  try {
    await body();
    console.log(`ok      ${name}, ${((Date.now() - begun) / 1000).toFixed(1)} s`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n        ${String(error.message).split('\n').slice(0, 12).join('\n        ')}`);
    for (const context of browser.contexts()) for (const page of context.pages()) await page.screenshot({ path: `${shots}failed-${failed}.png`, fullPage: true }).catch(() => {});
  }
}

export async function ended() {
  await browser.close();
  for (const complaint of new Set(complaints)) console.log(`FAILED  the browser complained: ${complaint}`);
  process.exit(failed + complaints.length ? 1 : 0);
}
