// Reservations of a session as text, the same as in `blockyard session list`.

import type { Session } from './types';

const roles = { holder: 'holds', registered_with_access: 'shares', registered: 'registered for' };

export const reservationsText = (one: Pick<Session, 'reservations'>): string =>
  one.reservations.map(({ volume, role }) => `${roles[role]} ${volume}`).join(', ') || '–';
