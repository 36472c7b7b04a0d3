// What a slow volume bottleneckText for, in words.

import { rate, time } from './format';
import type { Bottleneck } from './live.svelte';

export function bottleneckText(bottleneck: Bottleneck): string {
  switch (bottleneck.kind) {
    case 'iops_limit':
      return `held back at ${bottleneck.iops} commands/s, as it is set`;
    case 'bandwidth_limit':
      return `held back at ${rate(bottleneck.bandwidth)}, as it is set`;
    case 'disk':
      return `bottleneckText for disk ${bottleneck.disk}, ${time(bottleneck.mean_us)} each, ${Math.round(bottleneck.busy * 100)} % busy`;
    case 'rebuild':
      return `pool ${bottleneck.pool} is being rebuilt`;
    case 'lost':
      return `a member of pool ${bottleneck.pool} is lost`;
  }
}
