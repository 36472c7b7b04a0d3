// Geometry of RAID groups: redundancy, capacity and chunk placement of each level.

import type { Level } from './types';

export const LEVELS: Level[] = ['raid0', 'raid5', 'raid6', 'raid10', 'raid1'];

export const levelName: Record<Level, string> = {
  raid0: 'RAID 0',
  raid1: 'RAID 1',
  raid5: 'RAID 5',
  raid6: 'RAID 6',
  raid10: 'RAID 10',
};
const LEAST: Record<Level, number> = { raid0: 1, raid1: 2, raid5: 3, raid6: 4, raid10: 4 };

export function isPossible(level: Level, members: number): boolean {
  return members >= LEAST[level] && (level !== 'raid10' || members % 2 === 0);
}

/** Number of members that hold data, without parity and mirrors. */
export function dataMembers(level: Level, members: number): number {
  return { raid0: members, raid1: 1, raid5: members - 1, raid6: members - 2, raid10: members / 2 }[level];
}

/** Number of arbitrary member failures that the group survives. */
export function failuresTolerated(level: Level, members: number): number {
  return { raid0: 0, raid1: members - 1, raid5: 1, raid6: 2, raid10: 1 }[level];
}

/** Default level for a number of disks. */
export function defaultLevel(members: number): Level {
  if (members >= 6) return 'raid6';
  if (members >= 3) return members === 4 ? 'raid6' : 'raid5';
  return members === 2 ? 'raid1' : 'raid0';
}

export type Chunk = { kind: 'data'; index: number } | { kind: 'copy'; index: number } | { kind: 'p' } | { kind: 'q' };

/**
 * Chunk placement, one row per stripe and one column per member. P of stripe 0 is on the last member and moves one
 * member to the left with each stripe (left-symmetric).
 */
export function stripes(level: Level, members: number, rows: number): Chunk[][] {
  const data = dataMembers(level, members);
  return Array.from({ length: rows }, (_, row) => {
    const line: Chunk[] = Array.from({ length: members });
    const first = row * data;
    if (level === 'raid5' || level === 'raid6') {
      const parities = level === 'raid6' ? 2 : 1;
      const p = members - 1 - (row % members);
      line[p] = { kind: 'p' };
      if (parities === 2) line[(p + 1) % members] = { kind: 'q' };
      for (let column = 0; column < data; column += 1)
        line[(p + parities + column) % members] = { kind: 'data', index: first + column };
      return line;
    }
    const copies = level === 'raid0' ? 1 : members / data;
    for (let column = 0; column < data; column += 1) {
      for (let copy = 0; copy < copies; copy += 1)
        line[column * copies + copy] = { kind: copy === 0 ? 'data' : 'copy', index: first + column };
    }
    return line;
  });
}
