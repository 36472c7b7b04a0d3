// The console in Debian's Firefox: every page, live updates, one task by keyboard alone, and an error.
import { readdirSync, readFileSync } from 'node:fs';
import { accessible, cli, ended, fits, go, kept, attemptLogin, open, pages, qemuIo, same, SCRATCH, shots, test, until, WEB, widths } from './harness.mjs';

const initiator = 'iqn.2026-11.org.example:web1';
const page = await open();

await test('Firefox: an empty array offers the setup form', async () => {
  await go(page, '');
  await page.getByText('No pools').waitFor();
  await page.screenshot({ path: `${shots}firefox-empty.png` });
});

for (const n of [0, 1, 2, 3]) cli('disk', 'add', '--name', `d${n}`, '--create', '256MiB', `${SCRATCH}/d${n}.img`);
cli('up', 'tank/vm1', '200MiB', ...[0, 1, 2, 3].map((n) => `${SCRATCH}/d${n}.img`), '--initiator', initiator, '--host', 'web');
const [{ iqn }] = cli('presentation', 'list');
await attemptLogin('iqn.2026-11.org.example:stranger');
cli('snapshot', 'create', 'tank/vm1', 'monday');

await test('Firefox: I/O of a host appears through the event stream', async () => {
  const streamed = page.waitForRequest(/\/api\/v1\/stream/);
  await go(page, 'events');
  await page.reload();
  await streamed;
  await go(page, '');
  const figure = (name) => page.locator('.figure', { has: page.getByText(name, { exact: true }) }).locator('dd');
  const busy = qemuIo(iqn, initiator, ...Array.from({ length: 24 }, (_, i) => [`write -P 0xa5 ${i}M 1M`, 'sleep 250']).flat());
  // Latencies come only from the event stream.
  await until('times come by themselves', async () => /\d/.test(await figure('Latency (p99)').textContent()), 15);
  await until('commands are counted', async () => parseFloat(await figure('IOPS').textContent()) > 0, 15);
  await page.getByRole('region', { name: /volumes$/ }).getByRole('link', { name: 'tank/vm1' }).waitFor();
  await page.screenshot({ path: `${shots}firefox-live.png`, fullPage: true });
  await busy;
  await until('it is still again', async () => parseFloat(await figure('IOPS').textContent()) === 0, 15);
});

await test('Firefox: a volume is created and presented by keyboard alone; an error is shown beside its field', async () => {
  /** Goes on by Tab until this has the focus. */
  const reach = async (wanted) => {
    for (let i = 0; i < 80; i += 1) {
      if (await wanted.evaluate((node) => node === document.activeElement)) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not come to ${wanted}`);
  };
  await go(page, 'volumes');
  await page.reload();
  await page.locator('#page-title').waitFor();
  await page.keyboard.press('Tab');
  same(await page.evaluate(() => document.activeElement.textContent), 'Skip to content', 'the skip link comes first');
  await page.keyboard.press('Enter');
  same(await page.evaluate(() => document.activeElement.id), 'page-title', 'it leads to the page');
  await reach(page.locator('.page-head').getByRole('button', { name: 'Create volume' }));
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Create volume' });
  same(await dialog.getByLabel('Pool').evaluate((node) => node === document.activeElement), true, 'the first field has the focus');
  const name = dialog.getByRole('textbox', { name: 'Name', exact: true });
  const size = dialog.getByRole('textbox', { name: 'Size', exact: true });
  await reach(name);
  await page.keyboard.type('vm1');
  await reach(size);
  await page.keyboard.type('lots');
  await dialog.getByRole('alert').filter({ hasText: 'Enter a size, for example 100GiB' }).waitFor();
  await page.keyboard.press('Control+a');
  await page.keyboard.type('16MiB');
  await page.keyboard.press('Enter');
  await dialog.getByRole('alert').filter({ hasText: 'tank/vm1' }).waitFor();
  const told = await name.getAttribute('aria-describedby');
  same((await dialog.getByRole('alert').getAttribute('id')) === told && (await name.getAttribute('aria-invalid')), 'true', 'the refusal belongs to its field');
  await page.screenshot({ path: `${shots}firefox-refused.png` });
  await accessible(page, 'a form that is refused');
  await page.keyboard.press('Shift+Tab');
  await reach(name);
  await page.keyboard.press('End');
  await page.keyboard.type('-keys');
  await reach(dialog.getByRole('button', { name: 'Create volume' }));
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'tank/vm1-keys' }).waitFor();

  await reach(page.getByRole('button', { name: 'Present…', exact: true }));
  await page.keyboard.press('Enter');
  const present = page.getByRole('dialog', { name: 'Present tank/vm1-keys to host' });
  const host = present.getByLabel('Host or group');
  await until('the hosts are there', async () => (await host.locator('option').count()) > 2, 5);
  await reach(host);
  await page.keyboard.type('web');
  same(await host.inputValue(), 'web', 'typing chooses');
  await reach(present.getByRole('button', { name: 'Present', exact: true }));
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Volume tank/vm1-keys presented to host web as LUN 1' }).waitFor();
  await page.screenshot({ path: `${shots}firefox-shown.png` });
  await page.keyboard.press('Escape');
  same(cli('presentation', 'list').some((one) => one.volume === 'tank/vm1-keys' && one.host === 'web'), true, 'the array has it');
  same(await page.getByRole('dialog').count(), 0, 'Escape closes the dialog');
});

for (const colorScheme of ['light', 'dark']) {
  for (const size of ['phone', 'desk']) {
    await test(`Firefox: every page in ${colorScheme}, ${size}: axe finds nothing, and it fits`, async () => {
      const [width, height] = widths[size];
      const other = await open({ colorScheme, viewport: { width, height } });
      const wrong = [];
      for (const [name, path] of Object.entries(pages)) {
        try {
          await go(other, path);
          same(await other.getByRole('heading', { level: 1 }).isVisible(), true, `${name} has its heading`);
          same(await other.evaluate(() => [innerWidth, matchMedia('(prefers-color-scheme: dark)').matches].join()), [width, colorScheme === 'dark'].join(), 'it is seen as it is meant to be');
          await other.waitForTimeout(250);
          await other.screenshot({ path: `${shots}firefox-${name}-${colorScheme}-${size}.png`, fullPage: true });
          await fits(other, name);
          await accessible(other, name);
        } catch (error) { wrong.push(error.message); }
      }
      await other.context().close();
      if (wrong.length) throw new Error(wrong.join('\n'));
    });
  }
}

await test('Firefox: the key of a pool is downloaded', async () => {
  cli('volume', 'create', 'tank/sealed', '16MiB', '--encrypted');
  await go(page, 'pools/tank');
  await page.getByRole('button', { name: 'Key…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Key of pool tank' });
  await dialog.getByRole('button', { name: 'Download key' }).click();
  // The driver reports no download event without a navigation, but saves the file.
  const found = () => readdirSync(kept, { recursive: true }).find((path) => path.endsWith('tank.key'));
  await until('the file is there', found, 10);
  same(/^blockyard-pool-key-1 [0-9a-f]{16} [0-9a-f]{64}\n$/.test(readFileSync(`${kept}/${found()}`, 'utf8')), true, 'the file is one that pool import reads');
});

if (WEB) await test('Firefox: the first user signs in by a one-time link, signs out and in again over HTTPS', async () => {
  const password = 'a long enough one 1';
  const admin = await open({ ignoreHTTPSErrors: true });
  await admin.goto(cli('web', 'link').url);
  await admin.getByRole('heading', { name: 'Welcome' }).waitFor();
  await accessible(admin, 'the page of a one-time link');
  await admin.getByLabel('User name').fill('alice');
  await admin.getByLabel('Password', { exact: true }).fill(password);
  await admin.getByLabel('Confirm password').fill(password);
  await admin.getByRole('button', { name: 'Create account' }).click();
  await admin.getByRole('heading', { name: 'Dashboard' }).waitFor();
  await admin.getByRole('button', { name: 'Sign out' }).click();
  await admin.getByLabel('User name').fill('alice');
  await admin.getByLabel('Password', { exact: true }).fill('not this one at all');
  await admin.getByRole('button', { name: 'Sign in' }).click();
  await admin.getByRole('alert').waitFor();
  await admin.screenshot({ path: `${shots}firefox-sign-in.png` });
  await admin.getByLabel('Password', { exact: true }).fill(password);
  await admin.getByRole('button', { name: 'Sign in' }).click();
  await admin.getByRole('heading', { name: 'Dashboard' }).waitFor();
  await admin.goto(`${WEB}#/settings?tab=users`);
  await admin.getByRole('heading', { name: 'Two-factor authentication' }).waitFor();
  await accessible(admin, 'settings of an admin');
});

await ended();
