// What a session is to the reservations of volumes: the same words as `blockyard session list` prints.

import type { Session } from './types';

const roles = { holder: 'holds', shares: 'shares', registered: 'registered for' };

export const reservationsText = (one: Pick<Session, 'reservations'>): string =>
  one.reservations.map(({ volume, role }) => `${roles[role]} ${volume}`).join(', ') || '–';
