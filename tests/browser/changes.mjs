// Changes through the console: setup by defaults, concurrent admins, a login that expires during input;
// and the display of disks, times and wide tables. Tests depend on each other: all use one array.
import { execFileSync } from 'node:child_process';
import { accessible, ADDRESS, BLOCKYARD, cli, ended, fits, go, attemptLogin, open, same, SCRATCH, shots, SOCKET, test, until, WEB, widths } from './harness.mjs';

const initiator = 'iqn.2026-11.org.example:web1';
const unknownInitiator = 'iqn.2026-11.org.example:stranger';
const a = await open();
const b = await open();
/** Runs the command line as another client. */
const by = (...words) => execFileSync(BLOCKYARD, ['--socket', SOCKET, ...words], { stdio: 'pipe' });

/** Records the change requests of a page. */
function changes(page) {
  const sent = [];
  page.on('request', (request) => { if (request.method() !== 'GET' && request.url().includes('/api/v1/')) sent.push({ what: `${request.method()} ${new URL(request.url()).pathname.slice('/api/v1'.length)}`, tag: request.headers()['if-match'] }); });
  return sent;
}
const sent = changes(a);
const counts = () => ['disk', 'pool', 'volume', 'host', 'presentation'].map((noun) => cli(noun, 'list').length).join();

await test('setup of an empty array with the defaults of the form: one request, with the displayed size', async () => {
  for (const n of [0, 1, 2, 3]) cli('disk', 'add', '--name', `d${n}`, '--create', '1GiB', `${SCRATCH}/d${n}.img`);
  await go(a, '');
  await a.getByRole('link', { name: 'Set up array' }).click();
  // Only the initiator has no default.
  await a.getByRole('textbox', { name: 'Initiator' }).fill(initiator);
  same(await a.getByLabel('Size').inputValue(), '1GiB', 'half of what four disks of 1 GiB hold as RAID 6');
  const command = 'blockyard up tank/vm1 1GiB';
  await a.getByText(command).waitFor();
  await accessible(a, 'the form of an empty array');
  await a.getByRole('button', { name: 'Create', exact: true }).click();
  await a.getByText('Volume tank/vm1 presented to host web1 as LUN 0').waitFor({ timeout: 60_000 });
  await a.getByText(command).waitFor();
  same(sent.map(({ what }) => what).join(), 'POST /setup', 'one request');
  const [pool, volume, host, seen] = [cli('pool', 'list'), cli('volume', 'list'), cli('host', 'list'), cli('presentation', 'list')];
  same(`${pool.length} ${pool[0].name} ${pool[0].groups[0].level} ${pool[0].groups[0].members.length}`, '1 tank raid6 4', 'the pool');
  same(`${volume.length} ${volume[0].name} ${volume[0].size}`, `1 tank/vm1 ${2 ** 30}`, 'the volume has the size that was shown');
  same(`${host.length} ${host[0].name} ${host[0].initiators}`, `1 web1 ${initiator}`, 'the host');
  same(`${seen.length} ${seen[0].volume} ${seen[0].host} ${seen[0].lun}`, '1 tank/vm1 web1 0', 'who sees it');
});

await test('setup form: no host preselected, existing hosts first, a denied initiator with a warning and CHAP; an error leaves nothing behind', async () => {
  await attemptLogin(unknownInitiator);
  for (const n of [0, 1, 2]) cli('disk', 'add', '--name', `e${n}`, '--create', '512MiB', `${SCRATCH}/e${n}.img`);
  await go(a, '');
  await go(a, 'start');
  await a.getByLabel('Pool', { exact: true }).waitFor();
  const hosts = a.getByRole('group', { name: 'Host selection' });
  await hosts.getByText(unknownInitiator).waitFor();
  const create = a.getByRole('button', { name: 'Create', exact: true });
  same(await hosts.getByRole('radio').evaluateAll((all) => all.map((one) => `${one.value} ${one.checked}`).join()), `host web1 false,denied ${unknownInitiator} false,type false`, 'what is offered, and nothing chosen');
  same(await create.isDisabled(), true, 'nothing can be created for nobody');
  await a.getByText('Select a host.').waitFor();

  // Override every default.
  await a.getByLabel('Pool', { exact: true }).selectOption({ label: 'New pool' });
  await a.getByRole('checkbox', { name: /^e2/ }).uncheck();
  await a.getByRole('radio', { name: /^RAID 0/ }).check();
  await a.getByLabel('Pool name').fill('deep');
  await a.getByLabel('Volume name').fill('db');
  await a.getByLabel('Size').fill('100MiB');
  await hosts.getByRole('radio', { name: /stranger/ }).check();
  await a.getByText('Unknown initiator.').waitFor();
  same(await a.getByLabel('Host name').inputValue(), 'stranger', 'a name is proposed');
  await a.getByLabel('Host name').fill('other');
  await a.getByLabel('CHAP secret').fill('short');
  await a.getByText(/blockyard up deep\/db 100MiB .*e0\.img .*e1\.img --level raid0 --initiator iqn\.2026-11\.org\.example:stranger --host other --chap-secret-file FILE/).waitFor();
  await accessible(a, 'the form with a denied initiator');
  await a.screenshot({ path: `${shots}start-denied.png`, fullPage: true });
  const before = counts();
  await create.click();
  await a.getByRole('alert').first().waitFor();
  await a.getByText('Nothing was changed.').waitFor();
  same(counts(), before, 'nothing is left of what was refused');
  same(`${await a.getByLabel('Size').inputValue()} ${await a.getByLabel('Pool name').inputValue()}`, '100MiB deep', 'what was entered stays');
  await a.getByLabel('CHAP secret').fill('a secret of twelve');
  await create.click();
  await a.getByText('Volume deep/db presented to host other as LUN 0').waitFor({ timeout: 30_000 });
  const pool = cli('pool', 'show', 'deep');
  same(`${pool.groups[0].level} ${pool.groups[0].members.map((one) => one.disk)}`, 'raid0 e0,e1', 'the pool');
  same(cli('volume', 'list').find((one) => one.name === 'deep/db').size, 100 * 2 ** 20, 'the volume');
  same(cli('host', 'list').find((one) => one.name === 'other').chap_user, 'other', 'the host authenticates by CHAP');
});

await test('every selectable disk shows path, size, model, serial and slot, and gets the same name as on the command line', async () => {
  // Devices of the system with full and with empty identity.
  const device = (path, identity) => ({ path, device: path, size: 512 * 2 ** 20, transport: 'loop', state: 'free', reason: null, label: { kind: 'none' }, identity: { serial: null, model: null, wwn: null, partition: null, stable_path: null, rotational: null, enclosure: null, slot: null, has_light: false, ...identity } });
  const machine = [device(`${SCRATCH}/sdx.img`, { model: 'ST12000NM001G', serial: 'ZL2ABC0', enclosure: 'top', slot: '3' }), device(`${SCRATCH}/Capital.img`, {})];
  const other = await open();
  await other.route((url) => url.pathname === '/api/v1/block-devices', (to) => to.fulfill({ contentType: 'application/json', body: JSON.stringify({ schema: 1, block_devices: machine, total: machine.length }) }));
  await go(other, 'start');
  await other.getByLabel('Pool', { exact: true }).selectOption({ label: 'New pool' });
  const picker = other.getByRole('group', { name: /^Disks/ });
  const labels = await picker.locator('label').evaluateAll((all) => all.map((one) => one.innerText.replaceAll(/\s+/g, ' ').trim()));
  const wanted = [['e2', `${SCRATCH}/e2.img`, 'unknown', 'unknown', 'unknown'], ['sdx', `${SCRATCH}/sdx.img`, 'ST12000NM001G', 'ZL2ABC0', 'top/3'], ['d0', `${SCRATCH}/Capital.img`, 'unknown', 'unknown', 'unknown']];
  // d0 to d3 are taken: the next free number is used.
  wanted[2][0] = 'd4';
  for (const [name, path, model, serial, slot] of wanted) {
    const facts = `${path} Model ${model} · Serial ${serial} · Slot ${slot}`;
    const label = labels.find((one) => one.startsWith(`${name} `));
    same(Boolean(label?.includes('536.9 MB') && label.includes(facts)), true, `${name} has ${facts}: ${labels.join(' | ')}`);
  }
  await other.screenshot({ path: `${shots}disk-picker.png`, fullPage: true });
  await other.context().close();
  await go(a, 'pools');
  await a.getByRole('button', { name: 'Create pool', exact: true }).click();
  await a.getByRole('dialog', { name: 'Create pool' }).getByText(`${SCRATCH}/e2.img`).waitFor();
  await a.keyboard.press('Escape');
  // The same paths on the command line.
  for (const name of ['sdx', 'Capital']) cli('disk', 'add', '--create', '64MiB', `${SCRATCH}/${name}.img`);
  const named = (path) => cli('disk', 'list').find((one) => one.path === path).name;
  same(`${named(`${SCRATCH}/sdx.img`)} ${named(`${SCRATCH}/Capital.img`)}`, 'sdx d4', 'the command line gives the same names');
  for (const name of ['sdx', 'd4']) by('disk', 'remove', name);
});

await test('two admins: a concurrent change is a conflict that shows both values and the author', async () => {
  sent.length = 0;
  await go(a, 'hosts/web1');
  await go(b, 'hosts/web1');
  await a.getByLabel('Allowed addresses').fill('10.1.0.0/16');
  await b.getByLabel('Allowed addresses').fill('10.2.0.0/16');
  await b.getByRole('button', { name: 'Set', exact: true }).click();
  const networks = () => cli('host', 'list').find((one) => one.name === 'web1').networks.join();
  await until('the first is set', () => networks() === '10.2.0.0/16', 5);
  await a.getByRole('button', { name: 'Set', exact: true }).click();
  const conflict = a.getByRole('alert', { name: 'Conflict' });
  await conflict.getByText('Conflicting change').waitFor();
  await conflict.getByText(/made the latest change \d+ s ago \(audit record \d+\)/).waitFor();
  same(await conflict.getByRole('row').nth(1).innerText().then((text) => text.replaceAll(/\s+/g, ' ')), 'Allowed addresses none 10.2.0.0/16', 'what was and what is');
  await conflict.getByText('10.1.0.0/16').waitFor();
  same(networks(), '10.2.0.0/16', 'the other change is there still');
  same(await a.getByLabel('Allowed addresses').inputValue(), '10.1.0.0/16', 'what was entered stays');
  await accessible(a, 'a conflict');
  await a.screenshot({ path: `${shots}conflict.png`, fullPage: true });
  await a.getByRole('button', { name: 'Set', exact: true }).click();
  await until('it is set by who has seen the other', () => networks() === '10.1.0.0/16', 5);
  await conflict.waitFor({ state: 'detached' });
  same(sent.every(({ tag }) => /^"[0-9a-f]+"$/.test(tag ?? '')), true, `every change carries a tag: ${JSON.stringify(sent)}`);
});

await test('two admins: conflicts in settings of a pool and a volume, and in host groups', async () => {
  cli('group', 'add', 'cluster', 'web1');
  for (const [path, field, mine, set, label, theirs] of [
    ['pools/tank', 'Warning threshold', '70%', ['pool', 'set', 'tank', 'scrub=weekly'], 'scrub every', 'weekly'],
    ['volumes/tank/vm1', 'Weight', '7', ['volume', 'set', 'tank/vm1', '--read-ahead', '1MiB'], 'read ahead', '1MiB'],
  ]) {
    await go(a, path);
    await a.getByLabel(field, { exact: true }).fill(mine);
    by(...set);
    const button = a.getByRole('button', { name: /^Set / });
    await button.click();
    const row = a.getByRole('alert', { name: 'Conflict' }).getByRole('row').filter({ hasText: label });
    await row.getByText(theirs).waitFor();
    same(await a.getByLabel(field, { exact: true }).inputValue(), mine, 'what was entered stays');
    await button.click();
    await a.getByRole('alert', { name: 'Conflict' }).waitFor({ state: 'detached' });
  }
  same(`${cli('pool', 'show', 'tank').policy.space.soft} ${cli('pool', 'show', 'tank').policy.scrub.every}`, '70 weekly', 'both changes of the pool are there');
  const { priority, read_ahead: ahead } = cli('volume', 'list').find((one) => one.name === 'tank/vm1').policy;
  same(`${priority} ${ahead}`, '7 1MiB', 'both changes of the volume are there');

  await go(a, 'hosts');
  await a.getByRole('button', { name: 'Hosts… of group cluster' }).click();
  const dialog = a.getByRole('dialog', { name: 'Hosts of group cluster' });
  await dialog.getByRole('checkbox', { name: 'web1', exact: true }).uncheck();
  by('group', 'join', 'cluster', 'other');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByRole('alert', { name: 'Conflict' }).getByText('other, web1').or(dialog.getByRole('alert', { name: 'Conflict' }).getByText('web1, other')).waitFor();
  same(cli('group', 'list')[0].hosts.length, 2, 'nothing is changed');
  await a.keyboard.press('Escape');
  by('group', 'remove', 'cluster');
});

await test('a dialog to delete a volume does not delete a new volume of the same name', async () => {
  by('volume', 'create', 'tank/dbl', '20MiB');
  const id = () => cli('volume', 'list').find((one) => one.name === 'tank/dbl')?.id;
  const old = id();
  await go(a, 'volumes/tank/dbl');
  await a.getByRole('button', { name: 'Delete…' }).click();
  const dialog = a.getByRole('dialog', { name: 'Delete volume tank/dbl' });
  await dialog.waitFor();
  by('volume', 'delete', 'tank/dbl', '--yes');
  await a.waitForTimeout(2500);
  by('volume', 'create', 'tank/dbl', '20MiB');
  await a.waitForTimeout(2500);
  same(id() === old, false, 'it is another one');
  await dialog.getByLabel('Type tank/dbl to confirm').fill('tank/dbl');
  await dialog.getByRole('button', { name: 'Delete volume' }).click();
  await dialog.getByText('Another object has this name now').waitFor();
  same(await dialog.getByRole('button', { name: 'Delete volume' }).isDisabled(), true, 'it cannot be deleted from here');
  same(Boolean(id()), true, 'the new volume is there');
  await a.screenshot({ path: `${shots}another-volume.png` });
  await accessible(a, 'another volume of the same name');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await a.getByRole('button', { name: 'Delete…' }).click();
  await dialog.getByLabel('Type tank/dbl to confirm').fill('tank/dbl');
  await dialog.getByRole('button', { name: 'Delete volume' }).click();
  await until('the new one is deleted by who has seen it', () => !id(), 5);
});

if (WEB) await test('a login that expires during input states the reason and keeps the input', async () => {
  const password = 'a long enough one 1';
  const admin = await open({ ignoreHTTPSErrors: true });
  await admin.goto(cli('web', 'link').url);
  await admin.getByLabel('User name').fill('alice');
  await admin.getByLabel('Password', { exact: true }).fill(password);
  await admin.getByLabel('Confirm password').fill(password);
  await admin.getByRole('button', { name: 'Create account' }).click();
  await admin.getByRole('heading', { name: 'Dashboard' }).waitFor();
  await admin.goto(`${WEB}#/hosts`);
  await admin.locator('.page-head').getByRole('button', { name: 'Add host', exact: true }).click();
  const form = admin.getByRole('dialog', { name: 'Add host' });
  await form.getByRole('textbox', { name: 'Name', exact: true }).fill('mail');
  await form.getByLabel('Initiators').fill('iqn.2026-11.org.example:mail');
  const { logins } = await (await fetch(`${ADDRESS}api/v1/logins`)).json();
  for (const { id } of logins) await fetch(`${ADDRESS}api/v1/logins/${id}`, { method: 'DELETE' });
  const over = admin.getByRole('dialog', { name: 'Login expired' });
  await over.getByText(/The login of alice was ended by an administrator/).waitFor();
  await admin.screenshot({ path: `${shots}login-ended.png` });
  await admin.keyboard.press('Escape');
  await admin.keyboard.press('Escape');
  same(await over.isVisible(), true, 'it cannot be passed by');
  await over.getByLabel('Password', { exact: true }).fill('not this one at all');
  await over.getByRole('button', { name: 'Sign in' }).click();
  await over.getByRole('alert').waitFor();
  await over.getByLabel('Password', { exact: true }).fill(password);
  await over.getByRole('button', { name: 'Sign in' }).click();
  await over.waitFor({ state: 'detached' });
  same(await form.getByRole('textbox', { name: 'Name', exact: true }).inputValue(), 'mail', 'what was entered is there');
  await form.getByRole('button', { name: 'Add host' }).click();
  await form.waitFor({ state: 'detached' });
  same(cli('host', 'list').some((one) => one.name === 'mail'), true, 'the host is added');
  // The conflict names the author.
  await go(a, 'hosts/mail');
  await a.getByLabel('Allowed addresses').fill('10.1.0.0/16');
  await admin.goto(`${WEB}#/hosts/mail`);
  await admin.getByLabel('Allowed addresses').fill('10.3.0.0/16');
  await admin.getByRole('button', { name: 'Set', exact: true }).click();
  await until('alice has set it', () => cli('host', 'list').find((one) => one.name === 'mail').networks.join() === '10.3.0.0/16', 5);
  await a.getByRole('button', { name: 'Set', exact: true }).click();
  await a.getByRole('alert', { name: 'Conflict' }).getByText(/: alice made the latest change \d+ s ago/).waitFor();
  await admin.context().close();
});

await test('times are local with their zone, and so is the scrub window', async () => {
  const far = await open({ timezoneId: 'Australia/Darwin' });
  await go(far, 'pools/tank');
  await far.getByText('Local time (Australia/Darwin (UTC+9:30))').waitFor();
  await far.getByText('Time zone: Australia/Darwin (UTC+9:30)').waitFor();
  await far.getByLabel('Scrub window').fill('22:00-06:00');
  await far.getByText('blockyard pool set tank scrub.window=12:30-20:30').waitFor();
  await far.getByRole('button', { name: 'Set scrub.window' }).click();
  await until('the array has it in UTC', () => cli('pool', 'show', 'tank').policy.scrub.window === '12:30-20:30', 5);
  await until('the console shows it as it was entered', async () => (await far.getByLabel('Scrub window').inputValue()) === '22:00-06:00', 5);
  await far.getByText(/Next scrub: .* UTC\+9:30\./).waitFor();
  await go(far, 'events');
  await far.getByRole('columnheader', { name: 'Time, Australia/Darwin (UTC+9:30)' }).waitFor();
  await far.context().close();
});

await test('a clipped table on a phone is marked at the edge and by a text until it is scrolled to the end', async () => {
  const [width, height] = widths.phone;
  const phone = await open({ viewport: { width, height } });
  for (const [path, box] of [['pools', '.scroll:has(> table)'], ['volumes', '.rows'], ['hosts', '.rows']]) {
    await go(phone, path);
    const table = phone.locator(box).filter({ has: phone.locator('tbody tr') }).last();
    await table.waitFor();
    const cut = () => table.evaluate((one) => `${one.dataset.cut}; ${getComputedStyle(one, '::after').content}; ${getComputedStyle(one).boxShadow === 'none' ? 'no shadow' : 'shadow'}`);
    same(await cut(), 'right; "Scroll sideways for more columns"; shadow', `${path} at its beginning`);
    await phone.screenshot({ path: `${shots}cut-${path}.png`, fullPage: true });
    await table.evaluate((one) => { one.scrollLeft = one.scrollWidth; });
    await until(`${path} is at its end`, async () => (await cut()).startsWith('left; '), 5);
    await fits(phone, path);
  }
  await go(phone, 'settings');
  const ends = await phone.getByRole('navigation', { name: 'Settings' }).getByRole('link').evaluateAll((all) => all.map((one) => one.getBoundingClientRect().right));
  same(ends.length === 5 && Math.max(...ends) <= width, true, `all tabs are in sight: ${ends}`);
  await phone.screenshot({ path: `${shots}tabs-phone.png` });
  await phone.context().close();
});

await test('settings tabs are shorter than two screens', async () => {
  const [width, height] = widths.desk;
  const desk = await open({ viewport: { width, height } });
  await go(desk, 'settings');
  const tabs = desk.getByRole('navigation', { name: 'Settings' }).getByRole('link');
  same((await tabs.allInnerTexts()).join(), 'Array,Host authentication,Alert receivers,Users,Configurations', 'the tabs');
  for (const tab of await tabs.all()) {
    await tab.click();
    await desk.waitForTimeout(400);
    const tall = await desk.evaluate(() => document.documentElement.scrollHeight);
    same(tall < 2 * height, true, `${await tab.innerText()} is ${tall} pixels tall`);
  }
  await desk.context().close();
});

await test('setup form with many hosts: denied initiators and the new host stay visible', async () => {
  for (let n = 0; n < 12; n += 1) cli('host', 'add', `many${n}`, '--initiator', `iqn.2026-11.org.example:many${n}`);
  await attemptLogin('iqn.2026-11.org.example:late');
  await go(a, '');
  await go(a, 'start');
  const hosts = a.getByRole('group', { name: 'Host selection' });
  await hosts.getByText('iqn.2026-11.org.example:late').waitFor();
  same(await hosts.evaluate((all) => all.scrollHeight <= all.clientHeight), true, 'nothing of the choice is cut');
  // Only the lists scroll, and their headings state the counts.
  await hosts.getByText('Denied initiators (1)').waitFor();
  await hosts.getByText(/^Existing hosts \(1\d\)$/).waitFor();
  same(await hosts.getByText('New host').evaluate((one) => one.closest('.list') === null), true, 'another host scrolls with no list');
  await a.screenshot({ path: `${shots}start-many-hosts.png`, fullPage: true });
});

await test('pages of a pool and a volume have no large empty areas', async () => {
  const [width, height] = widths.desk;
  const desk = await open({ viewport: { width, height } });
  for (const path of ['pools/tank', 'volumes/tank/vm1']) {
    await go(desk, path);
    await desk.waitForTimeout(1500);
    await desk.screenshot({ path: `${shots}dense-${path.split('/')[0]}.png`, fullPage: true });
    // Largest vertical gap between panels in each half of the page.
    const empty = await desk.evaluate(() => {
      const main = document.querySelector('main').getBoundingClientRect();
      const panels = [...document.querySelectorAll('main .panel, main .command, main .page-head, main > .message')].map((one) => one.getBoundingClientRect());
      let most = 0;
      for (const x of [main.left + main.width / 4, main.left + (main.width * 3) / 4]) {
        const here = panels.filter((one) => one.left <= x && one.right >= x).sort((one, other) => one.top - other.top);
        let end = here[0].bottom;
        for (const one of here) { most = Math.max(most, one.top - end); end = Math.max(end, one.bottom); }
      }
      return Math.round(most);
    });
    same(empty < 160, true, `${path} has ${empty} empty pixels`);
  }
  await desk.context().close();
});

await ended();
