// The page that the server serves: its views, and where they get their data.

import { request } from "./api.js";
import { askView, copyTexts } from "./ask.js";
import { cliffView } from "./cliff.js";
import { h, readAddress, themeButton } from "./dom.js";
import { emptyView } from "./empty.js";
import { aboutModel } from "./models.js";
import { paperView } from "./paper.js";
import { trainView } from "./train.js";

const VIEWS = {
  ask: { title: "Ask", open: openAsk },
  cliff: { title: "The cliff", open: async () => cliffView(await request("/api/runs")) },
  train: { title: "Train", open: async () => trainView({ choices: await choices() }) },
  paper: { title: "The paper", open: paperView },
};

let knownChoices = null;
async function choices() {
  return (knownChoices ??= await request("/api/choices"));
}

async function openAsk() {
  const [{ runs, root }, { cases }] = await Promise.all([request("/api/runs"), choices()]);
  return askView({
    models: runs.filter((run) => run.usable).map((run) =>
      ({ ...run, label: run.name, about: aboutModel(run) })),
    emptyView: () => emptyView(root),
    mostDigits: 10_000,
    ask: (run, problem, signal) => request("/api/ask", { run, problem }, signal),
    attention: (run, problem, iteration, first, last) =>
      request("/api/attention", { run, problem, iteration, first, last }),
    breakModel: (run, name, length, seed) =>
      request("/api/break", { run, case: name, length, seed }),
    describeCase: (name) => cases[name],
    copyAsk: (run, problem) => copyTexts(`${root}/${run}`, problem),
  });
}

const place = document.querySelector("main");
const links = Object.entries(VIEWS).map(([name, { title }]) => h("a", { href: `#${name}` }, title));
document.querySelector("nav").append(...links);
document.querySelector("header.top").append(themeButton());

let opening = 0;
async function openView() {
  const name = readAddress().view in VIEWS ? readAddress().view : "ask";
  const own = ++opening;
  links.forEach((link) => {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  document.title = `${VIEWS[name].title} · lengthwise`;
  let view;
  try {
    view = await VIEWS[name].open();
  } catch (error) {
    view = h("p", { class: "error", role: "alert" }, error.message);
  }
  if (own === opening) place.replaceChildren(view);
}
addEventListener("hashchange", openView);
openView();
