// The contrast of each visible text with what lies behind it (WCAG 2.2, 1.4.3), as [ratio, where] pairs.
() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest(".unseen, .skip, noscript, .fresh")) continue;
    const style = getComputedStyle(node), drawn = node.namespaceURI.endsWith("svg");
    const pair = [luminance(rgba(drawn ? style.fill : style.color)), luminance(behind(node))].sort((a, b) => b - a);
    const where = `${node.tagName}.${node.getAttribute("class") ?? ""}: ${node.textContent.trim().slice(0, 30)}`;
    found.push([(pair[0] + 0.05) / (pair[1] + 0.05), where]);
  }
  return found;
}
