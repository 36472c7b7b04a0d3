// A box that is larger inside than outside can be reached with the keyboard, so that its arrows scroll it.

export function scrolls(box: HTMLElement): { destroy(): void } {
  const look = () => {
    if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  };
  const sized = new ResizeObserver(look);
  const changed = new MutationObserver(look);
  sized.observe(box);
  changed.observe(box, { childList: true, subtree: true });
  look();
  return { destroy() { sized.disconnect(); changed.disconnect(); } };
}
