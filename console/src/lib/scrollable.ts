// Svelte action for scrollable boxes: marks the clipped edges (`data-cut`) and makes the box focusable while it can
// scroll, so that arrow keys work.

export function scrollable(box: HTMLElement): { destroy(): void } {
  const look = () => {
    const [more, rest] = [box.scrollWidth - box.clientWidth, box.scrollWidth - box.clientWidth - box.scrollLeft];
    if (more > 1 || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
    const cut = more > 1 ? [box.scrollLeft > 1 && 'left', rest > 1 && 'right'].filter(Boolean).join(' ') : '';
    if (box.dataset.cut !== cut) box.dataset.cut = cut;
  };
  const sized = new ResizeObserver(look);
  const changed = new MutationObserver(look);
  sized.observe(box);
  changed.observe(box, { childList: true, subtree: true });
  box.addEventListener('scroll', look, { passive: true });
  look();
  return {
    destroy() {
      sized.disconnect();
      changed.disconnect();
      box.removeEventListener('scroll', look);
    },
  };
}
