(() => {
  const KEY = "ratchet-place";
  const places = () => [...document.querySelectorAll("details")];
  const kept = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  if (kept) {
    const { open, y, rows, shown } = JSON.parse(kept);
    for (const one of places()) {
      const row = one.closest("tbody.x");
      one.open = row ? rows.includes(row.id) : open.includes(one.firstElementChild.textContent);
    }
    const select = document.getElementById("show");
    if (select && shown) { select.value = shown; select.dispatchEvent(new Event("change")); }
    history.scrollRestoration = "manual";
    const back = () => scrollTo({ top: y, behavior: "instant" });
    back();
    setTimeout(back, 600);
  }
  const leave = () => {
    const opened = places().filter((one) => one.open);
    const rows = opened.map((one) => one.closest("tbody.x")).filter(Boolean).map((row) => row.id);
    const open = opened.filter((one) => !one.closest("tbody.x")).map((one) => one.firstElementChild.textContent);
    const select = document.getElementById("show");
    sessionStorage.setItem(KEY, JSON.stringify({ open, rows, y: scrollY, shown: select ? select.value : "" }));
    location.reload();
  };
  const said = document.getElementById("live");
  let version = null;
  const ask = async () => {
    try {
      const answer = await fetch("version", { cache: "no-store" });
      const now = await answer.text();
      if (version !== null && now !== version) return leave();
      version = now;
      said.textContent = "Live: this page reloads when the ledger changes.";
    } catch {
      said.textContent = "The server has ended: this page shows what was last known.";
    }
    setTimeout(ask, 1500);
  };
  ask();
})();
