// What is said of disks on more than one page.

import { decimal } from './format';
import type { BlockDevice, Disk, Identity, Label } from './types';

/** Enclosure and slot, as far as they are known: `top/3`. */
export function place(disk: { identity: Identity } | undefined): string | undefined {
  const { enclosure, slot } = disk?.identity ?? {};
  return [enclosure, slot].filter(Boolean).join('/') || undefined;
}

/** True when a pool may be made of it, or it may take a lost one's place. */
export const usable = (disk: Disk): disk is Disk & { name: string } => disk.name !== null && disk.state === 'free' && !disk.spare;

const on = (label: Label | null | undefined): string | undefined =>
  label?.kind === 'foreign' ? label.what : label?.kind === 'ours' ? `a member of pool ${label.pool_name}` : label?.kind === 'damaged' ? 'a label of a pool that is not whole' : undefined;

/** What is on it that is not ours to overwrite. */
export const holds = (disk: Disk): string | undefined => on(disk.label);

/** A disk that may be ticked: one of the array's, or one of the machine's that the array does not know yet. */
export interface Candidate { id: string; name: string; size: number; about: string; holds?: string; path?: string }

const about = (parts: (string | null | undefined | false)[], path: string): string => parts.filter(Boolean).join(' · ') || path;

/** A free disk of the array. */
export const known = (disk: Disk & { name: string }): Candidate => ({
  id: disk.name, name: disk.name, size: disk.size, holds: holds(disk), about: about([place(disk) && `bay ${place(disk)}`, disk.identity.serial, disk.identity.model], disk.path),
});

/** How it is attached, in the field's spelling. */
export const attached: Record<NonNullable<BlockDevice['transport']>, string> = { sata: 'SATA', sas: 'SAS', nvme: 'NVMe', usb: 'USB', virtio: 'virtio', iscsi: 'iSCSI', fibre_channel: 'Fibre Channel', mmc: 'MMC', multipath: 'multipath', loop: 'loop' };

/** What tells a device of the machine from others. */
export const told = (device: BlockDevice): string =>
  about([place(device) && `bay ${place(device)}`, device.identity.serial && `serial ${device.identity.serial}`, device.transport && attached[device.transport], device.identity.rotational === null || device.identity.rotational === undefined ? '' : device.identity.rotational ? 'turns' : 'solid state', device.path], device.device);

/** A free device of the machine, with the name that it would get. */
export const offered = (device: BlockDevice, name: string): Candidate => ({
  id: device.path, name, size: device.size, path: device.path, about: about([place(device) && `bay ${place(device)}`, device.identity.serial, device.identity.model ?? (device.transport && attached[device.transport])], device.path),
});

/** Names for so many disks, `d0` and on, none of which is taken. */
export function names(taken: (string | null)[], many: number): string[] {
  const free: string[] = [];
  for (let n = 0; free.length < many; n += 1) if (!taken.includes(`d${n}`)) free.push(`d${n}`);
  return free;
}

/** Model and size in one line. */
export const called = (device: BlockDevice): string => `${device.identity.model ?? device.device}, ${decimal(device.size)}`;
