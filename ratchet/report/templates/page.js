"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const open = (hash) => {
    const row = /^#x\d+$/.test(hash) && document.getElementById(hash.slice(1));
    if (!row) return;
    row.hidden = false;
    const details = row.querySelector("details");
    if (details) details.open = true;
    row.scrollIntoView({ block: "center" });
  };
  const draw = () => {
    const options = { renderer: "svg", actions: false, ast: true };
    for (const [name, spec] of Object.entries(specs)) {
      const place = document.getElementById("chart-" + name);
      if (!place) continue;
      window.vegaEmbed(place, spec, options).then(({ view }) => {
        place.querySelector("svg").setAttribute("aria-hidden", "true"); // the place itself says what is in it
        view.addEventListener("click", (_, item) => {
          const id = item && item.datum && item.datum.id;
          if (Number.isInteger(id)) location.hash = "#x" + id;
        });
      });
    }
  };
  const filter = document.getElementById("filter");
  if (filter) {
    const select = document.getElementById("show");
    const rows = [...document.querySelectorAll("tbody.x")];
    filter.hidden = false;
    select.addEventListener("change", () => {
      for (const row of rows) row.hidden = Boolean(select.value) && row.dataset.outcome !== select.value;
      document.getElementById("shown").textContent = rows.filter((row) => !row.hidden).length + " of " + rows.length;
    });
  }
  const code = document.querySelector(".code");
  const hot = code && [...code.querySelectorAll(".hot")].sort((a, b) => b.style.getPropertyValue("--w") - a.style.getPropertyValue("--w"))[0];
  if (hot) code.scrollTop = hot.offsetTop - code.clientHeight / 2;
  addEventListener("hashchange", () => open(location.hash));
  open(location.hash);
  if (window.vegaEmbed) requestAnimationFrame(() => setTimeout(draw, 0));
})();
