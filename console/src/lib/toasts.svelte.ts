// Short toasts of what was done, read out by screen readers and gone after a while.

class Toasts {
  list = $state<{ id: number; text: string }[]>([]);
  private next = 0;

  show(text: string): void {
    const id = this.next++;
    this.list = [...this.list.slice(-2), { id, text }];
    setTimeout(() => {
      this.list = this.list.filter((toast) => toast.id !== id);
    }, 6000);
  }
}

export const toasts = new Toasts();
