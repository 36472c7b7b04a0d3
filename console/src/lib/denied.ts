// Why an initiator was not let in, in words.

import type { Host, DeniedLogin } from './types';

/** Those that still want something: not who was let in since. */
export function unresolvedDenials(list: DeniedLogin[], hosts: Host[]): DeniedLogin[] {
  const known = new Set(hosts.flatMap((host) => host.initiators));
  return list.filter(
    (login) => login.why.kind !== 'unknown_initiator' || !login.initiator || !known.has(login.initiator.toLowerCase()),
  );
}

export function denialReason(login: DeniedLogin): string {
  const { why, target } = login;
  switch (why.kind) {
    case 'unknown_initiator':
      return 'no host has this initiator';
    case 'wrong_address':
      return `host ${why.host} may not come from ${login.address}`;
    case 'not_proven':
      return `it did not prove to be host ${why.host}: ${why.how}`;
    case 'discovery_not_proven':
      return `it did not prove what discovery asks for: ${why.how}`;
    case 'held_back':
      return `too many have failed to prove to be host ${why.host}, or from there; they are judged one at a time`;
    case 'unknown_target':
      return `there is no target ${target ?? 'discovery'}`;
    case 'nothing_shown':
      return `host ${why.host} sees nothing in target ${target ?? 'discovery'}`;
    case 'protocol':
      return why.key ? `it broke the protocol with ${why.key}: ${why.rule}` : `it broke the protocol: ${why.rule}`;
    case 'no_session':
      return 'it wants to join a session that is not there';
    case 'other_group':
      return 'it wants to join a session of another portal group';
    case 'no_portal':
      return `portal ${why.portal} takes no sessions, and it reaches no other one of its group that does`;
    case 'full':
      return 'there are as many sessions as there may be';
    default:
      return login.status;
  }
}
