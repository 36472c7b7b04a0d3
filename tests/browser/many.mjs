// Every page of the console, over an array that is there and has many volumes, hosts and sessions (cargo xtask crowd --many).
import { accessible, cli, ended, go, open, quick, test } from './harness.mjs';

/** What each page may take to open. */
const WITHIN_MS = 1000;

const first = (noun) => cli(noun, 'list')[0];

await test('every page of this array opens within a second', async () => {
  const page = await open();
  await go(page, '');
  await page.getByText('Capacity').waitFor();
  const [volume, host] = [first('volume'), first('host')];
  await quick(page, [['volumes', volume.name], ['hosts', host.name], ['sessions', host.name], ['pools', 'Disks'], ['pools/tank', 'Layout'], ['start', 'The host'],
    [`volumes?search=${volume.name}`, volume.name], [`hosts?search=${host.name}`, host.name], [`sessions?search=${host.name}`, host.name],
    [`volumes/${volume.name}`, 'Size and space'], [`hosts/${host.name}`, 'What it sees'], ['settings', 'This node'], ['lab', 'Lab'], ['', 'Capacity']], WITHIN_MS);
  await go(page, 'hosts');
  await accessible(page, 'hosts of an array with many');
});

await ended();
