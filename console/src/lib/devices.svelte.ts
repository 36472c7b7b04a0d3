// Block devices of the system that are not disks of the array. A scan opens every device, so it runs on request only.

import { get, Problem } from './api';
import type { BlockDevice } from './types';

export class Devices {
  value = $state.raw<BlockDevice[] | undefined>();
  problem = $state.raw<Problem | undefined>();
  busy = $state(false);

  async scan(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    try {
      this.value = await get<BlockDevice[]>('/block-devices');
      this.problem = undefined;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
    } finally {
      this.busy = false;
    }
  }
}
