// Problems of the array and the pages that fix them.

import type { Pool, StatusProblem } from './types';
import { to } from './route.svelte';

/** Link to the page that fixes the problem; undefined if only the command line can. */
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

/** The `blockyard` command in a text, if any. */
export const commandIn = (text: string): string | undefined => /blockyard [a-z].*$/.exec(text)?.[0];

/** True if the problem concerns the pool, its log device, one of its volumes or one of its disks. */
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

/**
 * State of the pool for its heading, the same as in the command line: a critical problem takes precedence over the
 * redundancy state, and so does any problem of a healthy pool itself.
 */
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

/** True if the problem concerns the volume. */
export const concernsVolume = ({ subject }: { subject: string }, name: string): boolean => subject === `volume ${name}`;
