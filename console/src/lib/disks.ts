// What is said of disks on more than one page.

import type { BlockDevice, Disk, Identity, Label } from './types';

/** Enclosure and slot, as far as they are known: `top/3`. */
export function slotOf(disk: { identity: Identity } | undefined): string | undefined {
  const { enclosure, slot } = disk?.identity ?? {};
  return [enclosure, slot].filter(Boolean).join('/') || undefined;
}

/** True when a pool may be made of it, or it may take a lost one's slotOf. */
export const isUsable = (disk: Disk): disk is Disk & { name: string } =>
  disk.name !== null && disk.state === 'free' && !disk.spare;

const on = (label: Label | null | undefined): string | undefined =>
  label?.kind === 'foreign'
    ? label.what
    : label?.kind === 'ours'
      ? `a member of pool ${label.pool_name}`
      : label?.kind === 'damaged'
        ? 'a damaged pool label'
        : undefined;

/** What is on it that is not ours to overwrite. */
export const contentsOf = (disk: Disk): string | undefined => on(disk.label);

/** A disk that may be ticked: one of the array's, or one of the machine's that the array does not know yet. */
export interface DiskCandidate {
  id: string;
  name: string;
  size: number;
  path: string;
  identity: Identity;
  isNew: boolean;
  holds?: string;
}

/** What tells a disk from every other one besides its path and size, always in this order; what it does not report is said, too. */
export const identityText = (identity: Identity): string =>
  [
    `Model ${identity.model ?? 'unknown'}`,
    `Serial ${identity.serial ?? 'unknown'}`,
    `Slot ${slotOf({ identity }) ?? 'unknown'}`,
  ].join(' · ');

/** A free disk of the array. */
export const arrayDisk = (disk: Disk & { name: string }): DiskCandidate => ({
  id: disk.name,
  name: disk.name,
  size: disk.size,
  path: disk.path,
  identity: disk.identity,
  isNew: false,
  holds: contentsOf(disk),
});

/** How it is attached, in the field's spelling. */
export const attached: Record<NonNullable<BlockDevice['transport']>, string> = {
  sata: 'SATA',
  sas: 'SAS',
  nvme: 'NVMe',
  usb: 'USB',
  virtio: 'virtio',
  iscsi: 'iSCSI',
  fibre_channel: 'Fibre Channel',
  mmc: 'MMC',
  multipath: 'multipath',
  loop: 'loop',
};

/** How a device of the machine is attached, and its mediumText. */
export const mediumText = ({ transport, identity: { rotational } }: BlockDevice): string =>
  [
    transport && attached[transport],
    rotational === null || rotational === undefined ? undefined : rotational ? 'HDD' : 'SSD',
  ]
    .filter(Boolean)
    .join(', ');

/** A free device of the machine, with the name that it would get. */
export const systemDisk = (device: BlockDevice, name: string): DiskCandidate => ({
  id: device.path,
  name,
  size: device.size,
  path: device.path,
  identity: device.identity,
  isNew: true,
});

/** Names for the disks at these paths, none of which is taken: the last part of the path where that is a name, else `d0` and on. The command line and the array name them so, too. */
export function freeDiskNames(taken: (string | null)[], paths: string[]): string[] {
  const given: string[] = [];
  const isFree = (name: string) => !taken.includes(name) && !given.includes(name);
  for (const path of paths) {
    const stem = path
      .split('/')
      .at(-1)!
      .replace(/(?<=.)\.[^.]*$/, '');
    let name = stem;
    if (!/^[a-z0-9][a-z0-9._-]{0,62}$/.test(stem) || !isFree(stem)) for (let n = 0; !isFree((name = `d${n}`)); n += 1);
    given.push(name);
  }
  return given;
}
