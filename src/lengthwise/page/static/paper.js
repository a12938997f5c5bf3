// The paper: its tables and figures, ours beside the published numbers, with verdicts.

import { request } from "./api.js";
import { copyButtons, h, readAddress, writeAddress } from "./dom.js";

const SIGNS = { holds: "✓", "does not hold": "✗", "depends on the seed": "≈",
  "can't be judged": "?", "too few seeds": "…", "not run": "–" };

const HEADINGS = ["headline", "published", "digits", "ours (%)", "verdict"];

export async function paperView() {
  const scale = readAddress().scale ?? "cpu";
  const body = h("div", { class: "report" }, h("p", { class: "note" }, "reading the records …"));
  const load = async (chosen) => {
    writeAddress({ view: "paper", scale: chosen });
    try {
      const report = await request(`/api/paper?scale=${encodeURIComponent(chosen)}`);
      body.replaceChildren(...drawReport(report, load));
    } catch (error) {
      body.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  load(scale);
  return body;
}

function verdictBadge(verdict) {
  const kind = verdict.replace(/\W+/g, "-");
  return h("span", { class: `badge ${kind}` }, `${SIGNS[verdict] ?? "·"} ${verdict}`);
}

function drawReport(report, load) {
  const { scale, headlines, artefacts } = report;
  const change = (event) => load(event.target.value);
  const pick = h("label", {}, "scale ", h("select", { onchange: change },
    report.scales.map((name) => h("option", { value: name, selected: name === scale }, name))));
  const copy = copyButtons(() => ({
    command: `lengthwise paper report --scale ${scale}`,
    python: ["from pathlib import Path", "", "from lengthwise.paper import ARTEFACTS",
      "from lengthwise.paper.report import write_report", "",
      `write_report("${scale}", Path("results"), Path("runs"), Path("report"), ` +
      "list(ARTEFACTS.values()))"].join("\n"),
  }));
  const few = report.records ? `${report.records} records.` :
    `There are no records at ${scale} scale yet; the published numbers stand alone.`;
  return [
    h("p", {}, h("i", {}, "Length Generalization in Arithmetic Transformers"),
      " (Jelassi et al., 2023). ", few),
    h("div", { class: "inline" }, pick, copy),
    h("h2", {}, "Headlines"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, HEADINGS.map((text) => h("th", {}, text)))),
      h("tbody", {}, headlines.map((row) => h("tr", {},
        h("td", {}, row.text), h("td", {}, row.published), h("td", {}, row.digits),
        h("td", {}, row.ours, row.condition && h("small", {}, ` ${row.condition}`)),
        h("td", {}, verdictBadge(row.verdict), h("small", {}, ` ${row.seeds}`))))))),
    h("p", { class: "note" }, report.rule),
    h("h2", {}, "Tables and figures"),
    h("p", { class: "note" },
      "In a cell, ours stands above the published number. Stronger is higher."),
    ...artefacts.map((artefact) => drawArtefact(artefact, scale)),
  ];
}

function drawArtefact(artefact, scale) {
  const verdicts = artefact.claims.map((claim) => SIGNS[claim.verdict] ?? "·").join(" ");
  const body = h("div", {});
  const details = h("details", { class: "artefact", id: artefact.name },
    h("summary", {}, h("b", {}, artefact.where), ` ${artefact.title} `,
      h("small", {}, `${artefact.done} of ${artefact.conditions} conditions `),
      h("span", { class: "signs" }, verdicts)),
    body);
  // Figures are drawn by the server, so only those that are looked at.
  details.addEventListener("toggle", () => {
    if (!details.open || body.childElementCount) return;
    const query = new URLSearchParams({ scale, artefact: artefact.name });
    body.append(
      ...artefact.tables.map(drawTable),
      ...(artefact.figure ? [h("img", { src: `/api/figure?${query}`, class: "figure",
        alt: `${artefact.where}: ${artefact.title}` })] : []),
      h("ul", { class: "claims" }, artefact.claims.map((claim) =>
        h("li", {}, verdictBadge(claim.verdict), ` ${claim.text} `, h("small", {}, claim.seeds),
          claim.evidence.length > 0 &&
            h("details", {}, h("summary", {}, "evidence"), bullets(claim.evidence))))),
      bullets(artefact.notes),
      copyButtons(() => ({
        command: `lengthwise paper run ${artefact.name} --scale ${scale}`,
        python: `from lengthwise.paper import ARTEFACTS\n\nprint(ARTEFACTS["${artefact.name}"]` +
          `.conditions("${scale}"))`,
      })));
  });
  return details;
}

function bullets(lines) {
  return lines.length ? h("ul", { class: "note" }, lines.map((line) => h("li", {}, line))) : "";
}

function drawTable({ title, columns, rows }) {
  const cell = ({ share, ours, published }) =>
    h("td", { class: share === null ? "cell none" : "cell", "--share": share ?? 0, title: ours },
      h("b", {}, share === null ? "" : (100 * share).toFixed(1)),
      h("small", {}, published === null ? "" : String(published)));
  return h("div", { class: "scroll" }, h("table", { class: "numbers" },
    h("caption", {}, title),
    h("thead", {}, h("tr", {}, h("th", {}), columns.map((column) => h("th", {}, column)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("th", {}, row.label), row.cells.map(cell))))));
}
