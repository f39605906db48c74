// A request's time in each stage, as a table with a lane per stage.

import { duration } from "./conversation.js";
import { draw, make } from "./elements.js";

/** Show when each stage worked on a request; `audible` names the stages that make sound. */
export function showTimes(timeline, audible, place) {
  if (!timeline.stages.length) {
    const why = timeline.status === "completed" ? "Its stages told no times." : "It has not finished.";
    place.replaceChildren(make("p", { class: "faint" }, why));
    return;
  }
  const end = Math.max(timeline.seconds ?? 0, ...timeline.stages.map((span) => span.finished));
  const caption = `Request ${timeline.request_id}: ${duration(end)} in all. Pale: waiting for its first output.`;
  const head = ["Stage", "When", "Time"].map((name) => make("th", { scope: "col", class: "unseen" }, name));
  place.replaceChildren(
    make(
      "table",
      {},
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...timeline.stages.map((span) => row(span, end, audible.has(span.stage)))),
    ),
  );
}

function row(span, end, sounds) {
  const seconds = span.finished - span.opened;
  const when = `from ${duration(span.opened)} to ${duration(span.finished)}`;
  return make(
    "tr",
    { class: sounds ? "audio" : "" },
    make("th", { scope: "row", title: span.instance }, span.stage),
    make("td", { class: "lane" }, lane(span, end), make("span", { class: "unseen" }, when)),
    make("td", {}, duration(seconds)),
  );
}

function lane(span, end) {
  const x = (seconds) => (100 * seconds) / end;
  const making = span.first_output ?? span.opened;
  const bar = (name, from, to) =>
    draw("rect", { class: name, x: x(from), width: Math.max(0.6, x(to) - x(from)), height: 10, rx: 0.8 });
  return draw(
    "svg",
    { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "track-line", width: 100, height: 10 }),
    bar("span", span.opened, span.finished),
    bar("making", making, span.finished),
  );
}
