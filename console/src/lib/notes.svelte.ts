// Short notes of what was done, read out by screen readers and gone after a while.

class Notes {
  list = $state<{ id: number; text: string }[]>([]);
  private next = 0;

  say(text: string): void {
    const id = this.next++;
    this.list = [...this.list.slice(-2), { id, text }];
    setTimeout(() => {
      this.list = this.list.filter((note) => note.id !== id);
    }, 6000);
  }
}

export const notes = new Notes();
