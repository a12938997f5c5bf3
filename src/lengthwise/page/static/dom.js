// Elements, the address, and the clipboard.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: h("p", { class: "note", onclick: f }, "text", child, [more children]). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  const isShown = (child) => child !== null && child !== undefined && child !== false;
  const shown = children.flat(Infinity).filter(isShown);
  element.append(...shown);
  return element;
}

/** New contents, with the focus on the button that had it. */
export function redraw(place, parts) {
  const active = document.activeElement;
  const focused = place.contains(active) ? active.textContent : null;
  place.replaceChildren(...parts);
  const same = [...place.querySelectorAll("button, a")].find((one) => one.textContent === focused);
  same?.focus();
}

/** What the address says: the view, and its settings. */
export function readAddress() {
  const [view, query = ""] = location.hash.slice(1).split("?");
  return { view, ...Object.fromEntries(new URLSearchParams(query)) };
}

/** Put settings into the address, so that the view can be shared; empty ones are left out. */
export function writeAddress(changes) {
  const { view, ...settings } = { ...readAddress(), ...changes };
  const kept = Object.entries(settings).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(kept).toString();
  history.replaceState(null, "", `#${view}${query ? `?${query}` : ""}`);
}

/** Buttons that copy the command and the Python for what is shown; `texts` gives both. */
export function copyButtons(texts) {
  const said = h("span", { class: "said", role: "status" });
  const button = (label, key) =>
    h("button", {
      type: "button",
      class: "quiet",
      title: `copy the ${label} that does the same`,
      onclick: async () => {
        try {
          await copyText((await texts())[key]);
          said.textContent = "copied";
        } catch (error) {
          said.textContent = error.message;
        }
        setTimeout(() => (said.textContent = ""), 2500);
      },
    }, `copy as ${label}`);
  return h("div", { class: "copy" },
    button("command", "command"), button("Python", "python"), said);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Some browsers have no clipboard for pages from a file.
    const area = h("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("this browser does not let the page copy");
  }
}

/** Text in quotes for a shell. */
export function quoteShell(text) {
  return /^[\w./=+,-]+$/.test(text) ? text : `"${text.replace(/["$`\\]/g, "\\$&")}"`;
}

export function percentText(share) {
  if (share === 0 || share === 1) return `${100 * share} %`;
  if (share > 0.999) return ">99.9 %";
  return share < 0.001 ? "<0.1 %" : `${(100 * share).toFixed(1)} %`;
}

/** Numbers with thin spaces: 10 000. */
export function groupDigits(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Run a function again whenever the width of an element changes. */
export function onResize(element, draw) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (!element.isConnected) return;
    if (element.clientWidth !== width) {
      width = element.clientWidth;
      draw();
    }
  });
  observer.observe(element);
}

/** Call a function when nothing has called it again for a while. */
export function debounce(milliseconds, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}

/** A choice between light, dark, and what the system prefers, kept for the next visit. */
export function themeButton() {
  const themes = ["auto", "light", "dark"];
  const button = h("button", { type: "button", class: "quiet theme" });
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.title = `colours: ${theme}; press to change`;
    button.setAttribute("aria-label", button.title);
  };
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is switched off
    }
  };
  let theme = themes.includes(stored()) ? stored() : "auto";
  show(theme);
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // The choice holds until the page is closed.
    }
  });
  return button;
}
