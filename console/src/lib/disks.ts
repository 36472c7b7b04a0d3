// Texts and candidates for disks, shared by several pages.

import type { BlockDevice, Disk, Identity, Label } from './types';

/** Enclosure and slot as far as known, such as `top/3`. */
export function slotOf(disk: { identity: Identity } | undefined): string | undefined {
  const { enclosure, slot } = disk?.identity ?? {};
  return [enclosure, slot].filter(Boolean).join('/') || undefined;
}

/** True if the disk can become a pool member or a replacement. */
export const isUsable = (disk: Disk): disk is Disk & { name: string } =>
  disk.name !== null && disk.state === 'free' && !disk.spare;

const on = (label: Label | null | undefined): string | undefined =>
  label?.kind === 'foreign'
    ? label.description
    : label?.kind === 'pool_member'
      ? `a member of pool ${label.pool_name}`
      : label?.kind === 'damaged'
        ? 'a damaged pool label'
        : undefined;

/** Existing contents that would be overwritten, as text. */
export const contentsOf = (disk: Disk): string | undefined => on(disk.label);

/** Selectable disk: a disk of the array, or a device of the system that is not added yet. */
export interface DiskCandidate {
  id: string;
  name: string;
  size: number;
  path: string;
  identity: Identity;
  isNew: boolean;
  holds?: string;
}

/** Model, serial number and slot of a disk in fixed order; missing values are shown as unknown. */
export const identityText = (identity: Identity): string =>
  [
    `Model ${identity.model ?? 'unknown'}`,
    `Serial ${identity.serial ?? 'unknown'}`,
    `Slot ${slotOf({ identity }) ?? 'unknown'}`,
  ].join(' · ');

/** Candidate for a free disk of the array. */
export const arrayDisk = (disk: Disk & { name: string }): DiskCandidate => ({
  id: disk.name,
  name: disk.name,
  size: disk.size,
  path: disk.path,
  identity: disk.identity,
  isNew: false,
  holds: contentsOf(disk),
});

/** Transports in their usual spelling. */
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

/** Transport and medium of a device of the system. */
export const mediumText = ({ transport, identity: { rotational } }: BlockDevice): string =>
  [
    transport && attached[transport],
    rotational === null || rotational === undefined ? undefined : rotational ? 'HDD' : 'SSD',
  ]
    .filter(Boolean)
    .join(', ');

/** Candidate for a free device of the system, with the disk name it would get. */
export const systemDisk = (device: BlockDevice, name: string): DiskCandidate => ({
  id: device.path,
  name,
  size: device.size,
  path: device.path,
  identity: device.identity,
  isNew: true,
});

/**
 * Unused disk names for these paths: the file name if it is a valid name, else `d0`, `d1` and so on. The daemon and
 * the command line use the same rule.
 */
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
