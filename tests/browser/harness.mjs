// Test harness: browsers, pages that record errors, the command line and third-party initiators.
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { AxeBuilder } from '@axe-core/playwright';
import { chromium } from 'playwright-core';
import { firefox } from 'playwright-esr';

export const { BLOCKYARD, SOCKET, PORTAL, SCRATCH, ADDRESS, WEB } = process.env;
export const shots = new URL('shots/', import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

/** True in Debian's unmodified Firefox, which is driven by WebDriver BiDi. */
export const inFirefox = process.env.BROWSER === 'firefox';
/** Download folder of Firefox. */
export const kept = `${SCRATCH}/kept`;
const browsers = new Map();
/** Browser of a color scheme. Firefox takes the theme from its preferences, so it needs one instance per theme. */
async function browserFor(colorScheme) {
  const kind = inFirefox ? colorScheme : 'chromium';
  if (!browsers.has(kind)) browsers.set(kind, inFirefox
    ? await firefox.launch({ channel: 'moz-firefox', executablePath: process.env.FIREFOX ?? '/usr/bin/firefox-esr', downloadsPath: kept, firefoxUserPrefs: { 'layout.css.prefers-color-scheme.content-override': colorScheme === 'dark' ? 0 : 1, 'ui.prefersReducedMotion': 1 } })
    : await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: process.getuid() === 0 ? ['--no-sandbox'] : [] }));
  return browsers.get(kind);
}
console.log(`        ${inFirefox ? 'Firefox' : 'Chromium'} ${(await browserFor('light')).version()}`);

/** Errors of the browser on any page; one of them fails the run. */
export const complaints = [];

const dist = new URL('../../console/dist/', import.meta.url).pathname;
const fresh = (path) => (path.includes('.') && existsSync(dist + path.slice(1)) ? dist + path.slice(1) : `${dist}index.html`);

/** Style that the driver injects for screenshots; its CSP violation is expected. */
const driversOwn = createHash('sha256').update('body {}').digest('base64');

/** Opens a page in a new context. 404s of a daemon without users are expected. */
export async function open(options = {}) {
  const browser = await browserFor(options.colorScheme ?? 'light');
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  // FRESH=1: serve console/dist instead of the files embedded in the program.
  if (WEB && process.env.FRESH) await page.route((url) => url.href.startsWith(WEB) && !url.pathname.startsWith('/api/'), (to) => to.fulfill({ path: fresh(new URL(to.request().url()).pathname) }));
  page.on('pageerror', (error) => { if (!(inFirefox && error.message.includes(`'sha256-${driversOwn}'`))) complaints.push(`${page.url()}: ${error.message}`); });
  page.on('console', (message) => {
    const asked = message.location().url ?? '';
    if (message.type() === 'error' && !/\/api\/v1\/(session|users|tokens|audit)/.test(asked) && !/status of 4(0[0-49]|12|22)/.test(message.text())) complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on('request', (request) => { if (!request.url().startsWith(ADDRESS) && !(WEB && request.url().startsWith(WEB)) && !request.url().startsWith('blob:')) complaints.push(`asked elsewhere: ${request.url()}`); });
  return page;
}

export async function go(page, path) {
  await page.goto(`${ADDRESS}#/${path}`);
  await page.locator('#page-title').waitFor();
}

/** Every page: name of its screenshot and path. */
export const pages = { dashboard: '', start: 'start', pools: 'pools', pool: 'pools/tank', disk: 'disks/d0', replace: 'replace/d0', volumes: 'volumes', volume: 'volumes/tank/vm1', hosts: 'hosts', host: 'hosts/web', network: 'sessions', alerts: 'alerts', events: 'events', audit: 'events?tab=audit', lab: 'lab', settings: 'settings', 'settings-hosts': 'settings?tab=hosts', 'settings-alerts': 'settings?tab=alerts', 'settings-users': 'settings?tab=users', 'settings-config': 'settings?tab=config', none: 'nowhere' };
export const widths = { phone: [390, 844], desk: [1360, 850], wall: [2560, 1300] };

/** JSON output of the command line. */
export function cli(...words) {
  const text = execFileSync(BLOCKYARD, ['--socket', SOCKET, '-o', 'json', ...words], { encoding: 'utf8', maxBuffer: 1 << 28 });
  const answer = JSON.parse(text);
  return answer[Object.keys(answer).find((key) => !['schema', 'total', 'next'].includes(key))];
}

const run = promisify(execFile);

/** Runs qemu-io commands on the LUN with qemu's initiator. Throws if a pattern does not match. */
export async function qemuIo(iqn, initiator, ...commands) {
  const image = `driver=raw,file.driver=iscsi,file.transport=tcp,file.portal=${PORTAL},file.target=${iqn},file.lun=0,file.initiator-name=${initiator}`;
  const { stdout } = await run('qemu-io', ['--image-opts', image, ...commands.flatMap((command) => ['-c', command])], { timeout: 30_000 });
  if (/verification failed|error/i.test(stdout)) throw new Error(stdout);
}

/** Attempts a login as an initiator. */
export async function attemptLogin(initiator) {
  await run('iscsi-ls', ['-i', initiator, `iscsi://${PORTAL}/`], { timeout: 10_000 }).catch(() => {});
}

export function same(is, wanted, what) {
  if (is !== wanted) throw new Error(`${what}: ${JSON.stringify(is)}, and not ${JSON.stringify(wanted)}`);
}

/** Waits until the condition holds. */
export async function until(what, holds, seconds = 30) {
  for (let i = 0; i < seconds * 4; i += 1) {
    if (await holds()) return;
    await new Promise((then) => setTimeout(then, 250));
  }
  throw new Error(`it was never so that ${what}`);
}

/** Checks the WCAG 2.2 A and AA and best-practice rules of axe. */
export async function accessible(page, name) {
  const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze();
  if (violations.length) throw new Error(`${name}: ${violations.map(({ id, help, nodes }) => `${id} (${help}): ${nodes.slice(0, 3).map((node) => node.target.join(' ')).join(', ')}`).join('; ')}`);
}

/** Roles that need an accessible name. */
const NAMED = new Set(['button', 'link', 'textbox', 'searchbox', 'spinbutton', 'combobox', 'listbox', 'checkbox', 'radio', 'switch', 'slider', 'meter', 'progressbar', 'dialog', 'navigation', 'table', 'grid', 'columnheader', 'image', 'heading']);

/** Checks the accessibility tree: names, table headers, heading levels and live regions. The tree is saved beside the screenshots. */
export async function readable(page, name) {
  const asked = await page.context().newCDPSession(page);
  const { nodes } = await asked.send('Accessibility.getFullAXTree');
  await asked.detach();
  const by = new Map(nodes.map((node) => [node.nodeId, node]));
  const tree = [];
  const walk = (node, depth, table) => {
    const role = node.role?.value ?? '';
    const own = { role, depth, table, name: (node.name?.value ?? '').trim(), has: Object.fromEntries((node.properties ?? []).map((one) => [one.name, one.value.value])) };
    if (!node.ignored && role !== 'InlineTextBox' && role !== 'generic') tree.push(own);
    for (const id of node.childIds ?? []) if (by.has(id)) walk(by.get(id), node.ignored || role === 'generic' ? depth : depth + 1, role === 'table' || role === 'grid' ? own : table);
  };
  walk(nodes[0], 0);
  writeFileSync(`${shots}${name}-tree.txt`, tree.map(({ role, depth, name, has }) => `${'  '.repeat(depth)}${role} ${JSON.stringify(name)}${has.level ? ` level ${has.level}` : ''}${has.live ? ` live ${has.live}` : ''}\n`).join(''));
  const wrong = tree.filter((one) => NAMED.has(one.role) && !one.name).map((one) => `a ${one.role} without a name`);
  for (const table of tree.filter((one) => one.role === 'table' || one.role === 'grid')) if (!tree.some((one) => one.table === table && one.role === 'columnheader')) wrong.push(`table ${table.name} without heads`);
  const levels = tree.filter((one) => one.role === 'heading').map((one) => one.has.level);
  if (levels.filter((level) => level === 1).length !== 1 || levels.some((level, i) => level > (levels[i - 1] ?? 0) + 1)) wrong.push(`headings of levels ${levels.join(' ')}`);
  if (!tree.some((one) => one.role === 'main')) wrong.push('no main part');
  if (!tree.some((one) => one.has.live === 'polite' && one.name === 'Notifications')) wrong.push('no notifications');
  if (wrong.length) throw new Error(`${name}: ${[...new Set(wrong)].join(', ')}`);
  return tree;
}

export async function fits(page, name) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (over > 0) throw new Error(`${name} is ${over} pixels wider than its window`);
}

/** Time from navigation to the frame that shows the text, measured inside the browser to exclude the driver. */
export const opens = (other, path, text) => other.evaluate(([path, text]) => new Promise((done, never) => {
  setTimeout(() => never(new Error(`${path} does not show ${text}`)), 20_000);
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

/** Checks that each page (path and a text on it) opens within `within` milliseconds. */
export async function quick(page, paths, within) {
  const slow = [];
  for (const [path, text] of paths) {
    // Best of three, to exclude other load on the machine.
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
/** Runs one test; later tests run even if it fails. */
export async function test(name, body) {
  const begun = Date.now();
  try {
    await body();
    console.log(`ok      ${name}, ${((Date.now() - begun) / 1000).toFixed(1)} s`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n        ${String(error.message).split('\n').slice(0, 12).join('\n        ')}`);
    for (const browser of browsers.values()) for (const context of browser.contexts()) for (const page of context.pages()) await page.screenshot({ path: `${shots}failed-${inFirefox ? 'firefox-' : ''}${failed}.png`, fullPage: true }).catch(() => {});
  }
}

export async function ended() {
  for (const browser of browsers.values()) await browser.close();
  for (const complaint of new Set(complaints)) console.log(`FAILED  the browser complained: ${complaint}`);
  process.exit(failed + complaints.length ? 1 : 0);
}
