// Takes the pictures of the docs once the curves have filled: node pictures.mjs http://127.0.0.1:8099/ FOLDER
import { chromium } from 'playwright-core';

const [base, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: process.getuid() === 0 ? ['--no-sandbox'] : [] });
const open = async (colorScheme, path) => {
  const context = await browser.newContext({ viewport: { width: 1360, height: 850 }, colorScheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  await page.goto(`${base}#/${path}`);
  return page;
};
const pages = { 'dashboard-light': await open('light', ''), 'dashboard-dark': await open('dark', ''), 'volume-dark': await open('dark', 'volumes/tank/vm1') };
await new Promise((resolve) => setTimeout(resolve, 110_000));
for (const [name, page] of Object.entries(pages)) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
await browser.close();
