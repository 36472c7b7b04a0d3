// What a slow volume waits for, in words.

import { rate, time } from './format';
import type { Cause } from './live.svelte';

export function waits(cause: Cause): string {
  switch (cause.kind) {
    case 'iops_limit':
      return `held back at ${cause.iops} commands/s, as it is set`;
    case 'bandwidth_limit':
      return `held back at ${rate(cause.bandwidth)}, as it is set`;
    case 'disk':
      return `waits for disk ${cause.disk}, ${time(cause.mean_us)} each, ${Math.round(cause.busy * 100)} % busy`;
    case 'rebuild':
      return `pool ${cause.pool} is being rebuilt`;
    case 'lost':
      return `a member of pool ${cause.pool} is lost`;
  }
}
