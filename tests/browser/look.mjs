// Takes a screenshot of every page in both themes and three sizes, for review after a change.
//   node look.mjs http://127.0.0.1:8088/ FOLDER [PAGE…]
import { mkdirSync } from 'node:fs';
import { chromium } from 'playwright-core';

const [base, folder, ...only] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const sizes = { phone: [390, 844], desk: [1360, 850], wall: [2560, 1300] };
const pages = {
  dashboard: '', start: 'start', pools: 'pools', pool: 'pools/tank', disk: 'disks/d2', replace: 'replace/d2', volumes: 'volumes', volume: 'volumes/tank/vm1',
  hosts: 'hosts', host: 'hosts/web', network: 'sessions', alerts: 'alerts', events: 'events', audit: 'events?tab=audit', lab: 'lab', settings: 'settings', 'settings-hosts': 'settings?tab=hosts', 'settings-alerts': 'settings?tab=alerts', 'settings-users': 'settings?tab=users', 'settings-config': 'settings?tab=config',
};
const wanted = only.filter((one) => one in pages);
const themes = ['light', 'dark'].filter((one) => !only.some((o) => o === 'light' || o === 'dark') || only.includes(one));
const widths = Object.keys(sizes).filter((one) => !only.some((o) => o in sizes) || only.includes(one));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: process.getuid() === 0 ? ['--no-sandbox'] : [] });
for (const theme of themes) {
  for (const size of widths) {
    const [width, height] = sizes[size];
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce' });
    const page = await context.newPage();
    page.on('console', (message) => message.type() === 'error' && console.log(theme, size, message.text()));
    page.on('pageerror', (error) => console.log(theme, size, error.message));
    await page.goto(base);
    await page.waitForTimeout(Number(process.env.WARM ?? 3000));
    for (const [name, path] of Object.entries(pages)) {
      if (wanted.length && !wanted.includes(name)) continue;
      await page.goto(`${base}#/${path}`);
      await page.waitForTimeout(1700);
      await page.screenshot({ path: `${folder}/${name}-${theme}-${size}.png`, fullPage: size !== 'wall' });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) console.log(theme, size, name, `is ${wide} pixels too wide`);
    }
    await context.close();
  }
}
await browser.close();
