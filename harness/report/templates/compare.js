"use strict";
{
  const box = document.querySelector("#search");
  const count = document.querySelector("#found");
  const rows = [...document.querySelectorAll("main tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !wanted.every((word) => texts[index].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = wanted.length ? `${shown} of ${rows.length} lines` : "";
    if (wanted.length) {
      document.querySelectorAll("main > details").forEach((one) => { one.open = true; });
    }
  };
  box.addEventListener("input", filter);
  const unfold = () => {
    const aim = document.querySelector(location.hash || "#none");
    if (aim instanceof HTMLDetailsElement) { aim.open = true; }
  };
  addEventListener("hashchange", unfold);
  unfold();
}
