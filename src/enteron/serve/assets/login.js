// Name and token, or name and password, for a session.

import { $ } from "./dom.js";

$("form").addEventListener("submit", async (/** @type {Event} */ event) => {
  event.preventDefault();
  const answer = await fetch("/api/login", {
    method: "POST",
    headers: { "content-type": "application/json", "x-enteron": "1" },
    body: JSON.stringify({ name: $("name").value.trim(), secret: $("secret").value }),
  });
  if (answer.ok) { location.assign("/"); return; }
  const { problem, remedy } = await answer.json();
  $("failure").hidden = false;
  $("failure").textContent = `${problem[0].toUpperCase()}${problem.slice(1)}${remedy ? `; ${remedy}` : ""}.`;
});
$("name").focus();
