// What a directory without models shows: one button to the first of them.

import { request } from "./api.js";
import { h } from "./dom.js";

/** Says that there are no models, and trains one. */
export function emptyView(root) {
  const said = h("p", { class: "error", role: "alert" });
  const train = async () => {
    try {
      const { run } = await request("/api/train", {});
      location.hash = `train?run=${encodeURIComponent(run)}`;
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return h("div", { class: "empty" },
    h("p", {}, "There is no trained model in ", h("code", {}, root), " yet."),
    h("p", {}, "Train one on sums of 1 to 5 digits, and watch up to how many digits it adds. You " +
      "can ask it while it learns."),
    h("p", {}, h("button", { type: "button", class: "primary", onclick: train },
      "train a first model")),
    said,
    h("p", { class: "note" }, "Or ", h("a", { href: "#train" }, "choose what to train"),
      ", or run ", h("code", {}, "lengthwise demo"), " and reload."));
}
