// Notifications about finished changes, announced by screen readers and removed after 6 seconds.

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
