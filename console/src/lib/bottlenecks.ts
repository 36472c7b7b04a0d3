// Bottleneck of a slow volume as text.

import { count, rate, time } from './format';
import type { Bottleneck } from './live.svelte';

export function bottleneckText(bottleneck: Bottleneck): string {
  switch (bottleneck.kind) {
    case 'iops_limit':
      return `IOPS limit: ${count(bottleneck.iops)}`;
    case 'bandwidth_limit':
      return `bandwidth limit: ${rate(bottleneck.bandwidth)}`;
    case 'disk':
      return `disk ${bottleneck.disk}: mean latency ${time(bottleneck.mean_us)}, ${Math.round(bottleneck.busy * 100)} % busy`;
    case 'rebuild':
      return `rebuild of pool ${bottleneck.pool}`;
    case 'lost':
      return `pool ${bottleneck.pool} degraded`;
  }
}
