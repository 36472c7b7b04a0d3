// A problem of the array, and the page where it is put right.

import type { Pool, StatusProblem } from './types';
import { to } from './route.svelte';

/** Where the console helps with it; none where only the command does. */
export function remedyLink(
  problem: { subject: string; action: string },
  pools: Pool[],
): { href: string; text: string } | undefined {
  const [kind, name = ''] = problem.subject.split(' ');
  const lost = /blockyard disk replace (\S+)/.exec(problem.action)?.[1];
  if (lost) return { href: to.replace(lost), text: `Replace disk ${lost}` };
  if (kind === 'pool' && pools.some((pool) => pool.name === name))
    return { href: to.pool(name), text: `Open pool ${name}` };
  if (kind === 'volume') return { href: to.volume(name), text: `Open volume ${name}` };
  if (kind === 'disk') return { href: to.disk(name), text: `Open disk ${name}` };
  if (kind === 'host') return { href: to.host(name), text: `Open host ${name}` };
  if (kind === 'portal') return { href: '#/sessions', text: 'Open portals' };
  if (kind === 'receiver') return { href: '#/settings', text: 'Open alert receivers' };
  return undefined;
}

/** The command in a text, if there is one. */
export const commandIn = (text: string): string | undefined => /blockyard [a-z].*$/.exec(text)?.[0];

/** True where the problem is about the pool, its log, one of its volumes or one of its disks. */
export function concernsPool({ subject }: { subject: string }, name: string, pools: Pool[]): boolean {
  const members =
    pools.find((pool) => pool.name === name)?.groups.flatMap((group) => group.members.map((member) => member.disk)) ??
    [];
  return (
    subject === `pool ${name}` ||
    subject === `log of pool ${name}` ||
    subject.startsWith(`volume ${name}/`) ||
    members.some((disk) => disk && (subject === `disk ${disk}` || subject === `file system of disk ${disk}`))
  );
}

/** How the pool is, in a word for its heading: what is critical goes before its redundancy, and so does whatever is wrong with a healthy
 * pool itself. The command line says the same. */
export function poolState(pool: Pool, problems: StatusProblem[], pools: Pool[]): { state: string; text?: string } {
  const own = `pool ${pool.name}`;
  const worst = problems.find(
    (problem) =>
      concernsPool(problem, pool.name, pools) &&
      (problem.severity === 'critical' || (pool.state === 'healthy' && problem.subject === own)),
  );
  return worst
    ? { state: worst.severity, text: worst.subject === own ? worst.state : `${worst.subject} ${worst.state}` }
    : { state: pool.state };
}

/** True where the problem is about the volume. */
export const concernsVolume = ({ subject }: { subject: string }, name: string): boolean => subject === `volume ${name}`;
