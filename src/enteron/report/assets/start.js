import { makeStudy } from "./curves.js";
import { makeDrawing } from "./drawing.js";
import { makeTimeline } from "./timeline.js";

// The parts of the report's page that its timeline needs, joined.
const study = makeStudy(JSON.parse(document.getElementById("data").textContent));
const drawing = makeDrawing(study);
const timeline = makeTimeline(study, drawing);
