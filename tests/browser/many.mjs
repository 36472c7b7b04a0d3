// Opens every page on a running array with many volumes, hosts and sessions (cargo xtask crowd --many).
import { accessible, cli, ended, go, open, quick, test } from './harness.mjs';

/** Time limit to open a page. */
const WITHIN_MS = 1000;

await test('every page of this array opens within a second', async () => {
  const page = await open();
  await go(page, '');
  await page.getByText('Capacity').waitFor();
  const { volume, host } = cli('presentation', 'list').at(-1);
  const [{ name: firstVolume }] = cli('volume', 'list');
  const [{ name: firstHost }] = cli('host', 'list');
  const [{ host: oldest }] = cli('session', 'list');
  await quick(page, [['volumes', firstVolume], ['hosts', firstHost], ['sessions', oldest], ['pools', 'Disks'], ['pools/tank', 'Layout'], ['start', 'Host'],
    [`volumes?search=${volume}`, volume], [`hosts?search=${host}`, host], [`sessions?search=${host}`, host],
    [`volumes/${volume}`, 'Capacity'], [`hosts/${host}`, 'Presented volumes'], ['settings', 'This node'], ['lab', 'Lab'], ['', 'Capacity']], WITHIN_MS);
  await go(page, 'hosts');
  await accessible(page, 'hosts of an array with many');
});

await ended();
