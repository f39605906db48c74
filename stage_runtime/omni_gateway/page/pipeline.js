// The live picture of the pipeline: stages from top to bottom, edges the way data goes.

import { draw, make } from "./elements.js";

const WIDTH = 332;
const ROW = 78;
const BOX_HEIGHT = 46;
const GAP = 12;

/** Rows of stage names: each stage lies below everything that feeds it. */
export function rowsOf(stages) {
  const depth = Object.fromEntries(stages.map((stage) => [stage.name, 0]));
  // As many rounds as stages settle every path; a loop, which no pipeline has, ends too.
  for (const _ of stages) {
    for (const stage of stages) {
      for (const target of targets(stage)) {
        depth[target] = Math.min(stages.length - 1, Math.max(depth[target], depth[stage.name] + 1));
      }
    }
  }
  const rows = [];
  for (const stage of stages) (rows[depth[stage.name]] ??= []).push(stage.name);
  return rows.filter(Boolean);
}

/** Draw the pipeline, and list it for those who cannot see the picture. */
export function showPipeline(pipeline, picture, list) {
  const { stages } = pipeline;
  const places = placesOf(rowsOf(stages));
  const height = Math.max(...Object.values(places).map((place) => place.y)) + BOX_HEIGHT + 2;
  const edges = stages.flatMap((stage) => targets(stage).map((target) => edge(stage, target, places)));
  const busy = stages.some((stage) => inFlight(stage) > 0);
  picture.replaceChildren(
    draw(
      "svg",
      { viewBox: `-1 -1 ${WIDTH + 2} ${height}`, "aria-hidden": "true", class: busy ? "busy" : "" },
      ...edges,
      ...stages.map((stage) => box(stage, places[stage.name])),
    ),
  );
  list.replaceChildren(...stages.map((stage) => make("li", {}, sentence(stage))));
}

/** Whether every stage has an instance that is ready. */
export function isReady(stage) {
  return instances(stage).some((instance) => instance.ready && !instance.draining);
}

function targets(stage) {
  return [...new Set([...(stage.next ?? []), ...(stage.stream_to ?? [])])];
}

function instances(stage) {
  return stage.instances ?? [];
}

function inFlight(stage) {
  return instances(stage).reduce((sum, one) => sum + Number(one.in_flight ?? 0), 0);
}

function placesOf(rows) {
  const places = {};
  rows.forEach((row, depth) => {
    const width = Math.min(180, (WIDTH - GAP * (row.length - 1)) / row.length);
    const start = (WIDTH - row.length * width - GAP * (row.length - 1)) / 2;
    row.forEach((name, column) => {
      places[name] = { x: start + column * (width + GAP), y: depth * ROW, width };
    });
  });
  return places;
}

function edge(stage, target, places) {
  const from = places[stage.name];
  const to = places[target];
  const [x1, y1, x2, y2] = [from.x + from.width / 2, from.y + BOX_HEIGHT, to.x + to.width / 2, to.y];
  const bend = Math.max(16, (y2 - y1) / 2);
  const streams = (stage.stream_to ?? []).includes(target);
  return draw("path", {
    d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`,
    class: streams ? "edge stream" : "edge",
  });
}

function box(stage, { x, y, width }) {
  const classes = ["stage"];
  if (stage.modality === "audio") classes.push("audio");
  if (!isReady(stage)) classes.push("unready");
  if (inFlight(stage)) classes.push("working");
  const letters = Math.floor((width - 34) / 7);
  return draw(
    "g",
    { class: classes.join(" "), transform: `translate(${x} ${y})` },
    draw("title", {}, sentence(stage)),
    draw("rect", { width, height: BOX_HEIGHT, rx: 12 }),
    draw("circle", { cx: 15, cy: 18, r: 4 }),
    draw("text", { x: 26, y: 22 }, shortened(stage.name, letters)),
    draw("text", { x: 26, y: 37, class: "note" }, shortened(note(stage), Math.floor(letters * 1.2))),
  );
}

function note(stage) {
  const all = instances(stage);
  if (!all.length) return "no instance";
  const ready = all.filter((one) => one.ready && !one.draining).length;
  if (ready < all.length) return `${ready} of ${all.length} ready`;
  const working = inFlight(stage);
  if (working) return `${working} in flight`;
  return all.length === 1 ? "ready" : `${all.length} ready`;
}

function sentence(stage) {
  const reasons = instances(stage)
    .filter((one) => !one.ready && one.reason)
    .map((one) => `${one.name}: ${one.reason}`);
  return [`${stage.name}: ${note(stage)}, group ${stage.group}`, ...reasons].join("; ");
}

function shortened(text, letters) {
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}
