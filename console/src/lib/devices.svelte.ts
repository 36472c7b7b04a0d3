// The block devices of the machine that the array does not know. Each look opens them: it is done when somebody asks for it.

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
