// Commands that connect a host to a volume, the same as `blockyard present` prints. Secrets are never included.

import type { Presentation } from './types';

export interface ConnectCommands {
  title: string;
  lines: string[];
}

function portalOf(presentation: Presentation): { address: string; port: string } {
  const first = presentation.portals[0] ?? '0.0.0.0:3260';
  const at = first.lastIndexOf(':');
  const address = first.slice(0, at);
  const wildcard = address === '0.0.0.0' || address === '[::]';
  return { address: wildcard ? 'ADDRESS' : address, port: first.slice(at + 1) };
}

// libiscsi copies the number in the URL into the first two bytes of the LUN field; above 255 it must be encoded as
// flat space addressing (SAM-5 4.7.7.4).
export const rawLun = (lun: number): number => (lun > 255 ? 0x4000 | lun : lun);

export function connectCommands(presentation: Presentation, initiator?: string): ConnectCommands[] {
  const { address, port } = portalOf(presentation);
  const { iqn, lun, chap_user: user, mutual_chap_user: ours } = presentation;
  const node = `iscsiadm -m node -T ${iqn}`;
  const update = (key: string, value: string) => `${node} -o update -n node.session.auth.${key} -v '${value}'`;
  const linux = [
    `iscsiadm -m discovery -t sendtargets -p ${address}:${port}`,
    ...(user ? [update('authmethod', 'CHAP'), update('username', user), update('password', 'SECRET')] : []),
    ...(ours ? [update('username_in', ours), update('password_in', 'OURS')] : []),
    `${node} --login`,
  ];
  const bare = address.replace(/^\[|\]$/g, '');
  const windows = [
    ...(ours ? ["Set-IscsiChapSecret -ChapSecret 'OURS'"] : []),
    `New-IscsiTargetPortal -TargetPortalAddress ${bare} -TargetPortalPortNumber ${port}`,
    `Connect-IscsiTarget -NodeAddress ${iqn} -IsPersistent $true${user ? ` -AuthenticationType ${ours ? 'MUTUALCHAP' : 'ONEWAYCHAP'} -ChapUsername '${user}' -ChapSecret 'SECRET'` : ''}`,
  ];
  const auth = (direction: string, name: string, secret: string) =>
    `esxcli iscsi adapter auth chap set --adapter=HBA --direction=${direction} --level=required --authname='${name}' --secret='${secret}'`;
  const esxi = [
    'esxcli iscsi software set --enabled=true',
    ...(user ? [auth('uni', user, 'SECRET')] : []),
    ...(ours ? [auth('mutual', ours, 'OURS')] : []),
    `esxcli iscsi adapter discovery sendtarget add --adapter=HBA --address=${address}:${port}`,
    'esxcli storage core adapter rescan --adapter=HBA',
  ];
  // Login commands run on each cluster node, the storage definition once.
  const storage =
    presentation.portals.length > 1
      ? [
          'pvcreate /dev/mapper/MAP && vgcreate blockyard /dev/mapper/MAP',
          'cat >> /etc/pve/storage.cfg <<END',
          'lvm: blockyard',
          '    vgname blockyard',
          '    shared 1',
          '    content images,rootdir',
          '    saferemove 0',
          'END',
        ]
      : [
          'cat >> /etc/pve/storage.cfg <<END',
          'iscsi: blockyard',
          `    portal ${address}:${port}`,
          `    target ${iqn}`,
          '    content images',
          'END',
        ];
  const proxmox = [...linux, ...storage, 'pvesm status'];
  const drive = `qemu-system-x86_64 -drive file=iscsi://${address}:${port}/${iqn}/${rawLun(lun)},format=raw,if=virtio${presentation.read_only ? ',readonly=on' : ''}`;
  const qemu = [
    `${drive}${user ? ' -object secret,id=chap,file=SECRET-FILE' : ''} -iscsi initiator-name=${initiator ?? 'INITIATOR'}${user ? `,user=${user},password-secret=chap` : ''}`,
  ];
  return [
    { title: 'Linux', lines: linux },
    { title: 'Windows', lines: windows },
    { title: 'ESXi', lines: esxi },
    { title: 'Proxmox', lines: proxmox },
    { title: 'qemu', lines: qemu },
  ];
}
