// Cards: filter, sort, enlarge pictures, and lead from a card to its mark in the timeline and back.
(() => {
  const container = document.getElementById("cards"); // of landmarks and findings; missing if there are none
  const cards = container ? [...container.querySelectorAll(".card")] : [];
  const everyCard = [...document.querySelectorAll(".card")];
  const filters = document.getElementById("filters");
  const shown = document.getElementById("shown");
  const chips = filters ? [...filters.querySelectorAll(".chip")] : [];

  const filter = (label) => {
    for (const chip of chips) {
      const on = chip.dataset.label === label;
      chip.classList.toggle("is-on", on);
      chip.setAttribute("aria-pressed", String(on));
    }
    let count = 0;
    for (const card of cards) {
      card.hidden = label !== "" && card.dataset.label !== label;
      count += card.hidden ? 0 : 1;
    }
    shown.textContent = label === "" ? "" : `${count} of ${cards.length} shown`;
  };
  const sort = (key) => {
    const number = (card, name) => Number(card.dataset[name]);
    const orders = {
      score: (a, b) => number(b, "score") - number(a, "score") || number(a, "start") - number(b, "start"),
      start: (a, b) => number(a, "start") - number(b, "start"),
      label: (a, b) => number(a, "column") - number(b, "column") || number(b, "score") - number(a, "score"),
    };
    cards.sort(orders[key]);
    container.append(...cards);
  };
  if (filters) {
    filters.hidden = false;
    for (const chip of chips) chip.addEventListener("click", () => filter(chip.dataset.label));
    const select = document.getElementById("sort");
    select.addEventListener("change", () => sort(select.value));
  }

  const highlight = (card) => {
    for (const other of everyCard) other.classList.toggle("is-lit", other === card);
    timeline.highlight(card.dataset.event);
  };
  const goToCard = (number) => {
    const card = document.getElementById(`event-${number}`);
    if (!card) return;
    if (card.hidden) filter("");
    highlight(card);
    card.scrollIntoView({ block: "center" });
    card.focus({ preventScroll: true });
  };
  document.addEventListener("show-card", (event) => goToCard(event.detail));
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#event-"]:not(.mark)');
    if (link) { event.preventDefault(); goToCard(link.getAttribute("href").slice(7)); }
  });

  for (const card of everyCard) {
    card.addEventListener("click", (event) => {
      const enlarge = event.target.closest(".enlarge");
      highlight(card);
      if (event.target.closest(".show")) {
        timeline.focusOn(card.dataset.event);
        document.getElementById("timeline").scrollIntoView({ block: "start" });
        document.getElementById("tracks").focus({ preventScroll: true });
      } else if (enlarge) open(card, enlarge);
    });
  }

  // The viewer.
  const viewer = document.getElementById("viewer");
  const picture = document.getElementById("viewer-picture");
  const caption = document.getElementById("viewer-caption");
  let current = null;
  const open = (card, enlarge) => {
    current = card;
    picture.src = enlarge.querySelector("img").src;
    picture.alt = caption.textContent = enlarge.dataset.caption;
    if (!viewer.open) viewer.showModal();
  };
  const step = (by) => {
    const listed = current.classList.contains("suspect");
    const among = listed ? [...document.querySelectorAll(".suspect")] : everyCard;
    const pictured = among.filter((card) => !card.hidden && card.querySelector(".enlarge"));
    const next = pictured[pictured.indexOf(current) + by];
    if (!next) return;
    if (!listed) highlight(next);
    open(next, next.querySelector(".enlarge"));
  };
  document.getElementById("viewer-previous").addEventListener("click", () => step(-1));
  document.getElementById("viewer-next").addEventListener("click", () => step(1));
  for (const suspect of document.querySelectorAll(".suspect .enlarge")) {
    suspect.addEventListener("click", () => open(suspect.closest(".suspect"), suspect));
  }
  viewer.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); });
})();
