"use strict";
(() => {
  const LOOKS = {
    light: {
      ink: "#1b1f24", soft: "#565d66", line: "#e1e5ea",
      colours: ["#0b6e99", "#c2570a", "#3f7a2f", "#8a4fb5", "#cf1f86", "#8f6f00", "#37474f", "#00877c"],
      scheme: "blues",
    },
    dark: {
      ink: "#e8ebee", soft: "#a9b2bc", line: "#333c46",
      colours: ["#6cb8dc", "#f0a35e", "#93c97f", "#c4a0e6", "#f08bc4", "#e3c34a", "#b3c2cb", "#5fd0c5"],
      scheme: "darkblue",
    },
  };
  const NARROW = 480; // pixels of a page that has no room for two legends beside each other
  const SHORT = 28; // letters of a cell that is not broken into lines
  const CANVAS_FROM = 1500; // marks from which a canvas is drawn faster than SVG
  let data = JSON.parse(document.getElementById("data").textContent);
  const views = new Map();
  const root = document.documentElement;

  // A chart's data comes by columns.
  const rowsOf = (columns) => {
    const names = Object.keys(columns);
    const length = names.length ? columns[names[0]].length : 0;
    return Array.from({ length }, (_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };
  const specOf = (figure) => {
    const datasets = Object.fromEntries(Object.entries(figure.data).map(([name, columns]) => [name, rowsOf(columns)]));
    return { ...figure.spec, datasets };
  };
  const configOf = (look) => ({
    background: null,
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif",
    aria: false, // the element around it says in words what it shows
    view: { stroke: null },
    axis: {
      labelColor: look.soft, titleColor: look.ink, gridColor: look.line, domainColor: look.soft, tickColor: look.soft,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, labelLimit: 140, titleLimit: 400,
      labelFlush: false, labelSeparation: 4,
    },
    legend: {
      labelColor: look.ink, titleColor: look.ink, labelFontSize: 12, symbolStrokeWidth: 2, labelLimit: 300,
      layout: { bottom: { direction: innerWidth < NARROW ? "vertical" : "horizontal" } },
    },
    title: { color: look.ink },
    mark: { color: look.colours[0] },
    range: { category: look.colours, ramp: { scheme: look.scheme }, heatmap: { scheme: look.scheme } },
    text: { color: look.ink },
  });
  const isDark = () => root.dataset.theme === "dark";

  const draw = async (element) => {
    const figure = data.figures[element.dataset.figure];
    const target = element.querySelector(".chart");
    const marks = Math.max(...Object.values(figure.data).map((columns) => (Object.values(columns)[0] || []).length));
    views.get(element.dataset.figure)?.finalize();
    const result = await window.headstartEmbed(target, specOf(figure), {
      actions: false, ast: true, renderer: marks > CANVAS_FROM ? "canvas" : "svg",
      config: configOf(isDark() ? LOOKS.dark : LOOKS.light), tooltip: { theme: isDark() ? "dark" : "light" },
    });
    views.set(element.dataset.figure, result);
    target.style.minHeight = "0";
    target.dataset.drawn = "yes";
  };
  // A dark page is printed light: pictures for that are made once there is time.
  const preparePrint = async () => {
    if (!isDark()) return;
    for (const element of document.querySelectorAll("figure")) {
      if (element.querySelector(".print")) continue;
      const svg = await pictureOf(element, "svg", LOOKS.light);
      const image = document.createElement("img");
      image.className = "print";
      image.alt = "";
      image.src = svg;
      element.querySelector("[role=img]").append(image);
    }
  };
  // Files have a white ground and the colours of paper, whatever the page looks like.
  const pictureOf = async (element, kind, look) => {
    const holder = document.createElement("div");
    holder.style.cssText = "position:absolute;left:-9999px;width:760px";
    holder.setAttribute("aria-hidden", "true");
    document.body.append(holder);
    try {
      const made = await window.headstartEmbed(holder, specOf(data.figures[element.dataset.figure]), {
        actions: false, ast: true, renderer: "svg", config: { ...configOf(look), background: "white" },
      });
      const address = await made.view.toImageURL(kind, kind === "png" ? 2 : 1);
      made.finalize();
      return address;
    } finally {
      holder.remove();
    }
  };
  const save = (address, name) => {
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
  };
  const saveText = (text, name, type) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    save(address, name);
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  const drawAll = async () => {
    const began = performance.now();
    for (const image of document.querySelectorAll(".print")) image.remove();
    await Promise.all([...document.querySelectorAll("figure")].map(draw));
    root.dataset.drawn = String(Math.round(performance.now() - began));
    (window.requestIdleCallback || setTimeout)(preparePrint);
  };

  const numberOf = (text) => {
    const found = Number.parseFloat(text.replace("∞", "Infinity"));
    return Number.isNaN(found) ? null : found;
  };
  const table = (element) => {
    const { numbers, columns, shown } = data.tables[element.dataset.table];
    const total = columns.length ? columns[0].length : 0;
    const body = element.querySelector("tbody");
    const heads = [...element.querySelectorAll("th")];
    const state = { order: Array.from({ length: total }, (_, i) => i), by: -1, down: false, search: "", page: 0 };
    const texts = Array.from({ length: total }, (_, i) => columns.map((column) => column[i]).join("\u0000").toLowerCase());
    const matching = () => {
      const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
      return state.order.filter((i) => words.every((word) => texts[i].includes(word)));
    };
    const show = () => {
      const found = matching();
      const pages = Math.max(1, Math.ceil(found.length / shown));
      state.page = Math.min(Math.max(state.page, 0), pages - 1);
      const rows = found.slice(state.page * shown, (state.page + 1) * shown).map((i) => {
        const row = document.createElement("tr");
        columns.forEach((column, place) => {
          const cell = row.insertCell();
          cell.textContent = column[i];
          if (numbers[place]) cell.className = "number";
          else if (column[i].length <= SHORT) cell.className = "short";
        });
        return row;
      });
      body.replaceChildren(...rows);
      const first = found.length ? state.page * shown + 1 : 0;
      const last = Math.min((state.page + 1) * shown, found.length);
      const of = found.length === total ? `${total.toLocaleString("en")} rows` : `${found.length.toLocaleString("en")} found of ${total.toLocaleString("en")} rows`;
      element.querySelector(".count").textContent = pages > 1 ? `${first} to ${last} of ${of}` : of;
      element.querySelector(".turn").hidden = total <= shown;
      element.querySelector(".search").hidden = total <= 5;
      element.querySelector('[data-turn="-1"]').disabled = state.page === 0;
      element.querySelector('[data-turn="1"]').disabled = state.page >= pages - 1;
      heads.forEach((head, place) => {
        if (place === state.by) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    };
    const sort = (place) => {
      state.down = state.by === place ? !state.down : false;
      state.by = place;
      const keys = numbers[place] ? columns[place].map(numberOf) : columns[place];
      const sign = state.down ? -1 : 1;
      const compare = numbers[place]
        ? (a, b) => (keys[a] === null) - (keys[b] === null) || sign * (keys[a] - keys[b]) || a - b // none comes last
        : (a, b) => sign * keys[a].localeCompare(keys[b], "en", { numeric: true }) || a - b;
      state.order.sort(compare);
      state.page = 0;
      show();
    };
    heads.forEach((head, place) => head.querySelector("button").addEventListener("click", () => sort(place)));
    element.querySelector("input").addEventListener("input", (event) => {
      state.search = event.target.value;
      state.page = 0;
      show();
    });
    for (const button of element.querySelectorAll("[data-turn]")) {
      button.addEventListener("click", () => {
        state.page += Number(button.dataset.turn);
        show();
      });
    }
    element.querySelector("[data-csv]").addEventListener("click", () => {
      const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
      const lines = [heads.map((head) => head.textContent), ...matching().map((i) => columns.map((column) => column[i]))];
      saveText(lines.map((cells) => cells.map(quoted).join(",")).join("\n") + "\n", `${element.dataset.table}.csv`, "text/csv");
    });
    show();
  };

  const begin = () => {
    document.querySelectorAll("[data-table]").forEach(table);
    for (const button of document.querySelectorAll("[data-picture]")) {
      button.addEventListener("click", async () => {
        const element = button.closest("figure");
        const kind = button.dataset.picture;
        save(await pictureOf(element, kind, LOOKS.light), `${element.dataset.figure}.${kind}`);
      });
    }
    for (const button of document.querySelectorAll("[data-copy]")) {
      button.addEventListener("click", async () => {
        const text = button.closest(".code").querySelector("pre");
        try {
          await navigator.clipboard.writeText(text.textContent);
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(text); // not allowed of a file: what is selected can be copied by keys
          button.textContent = "Selected";
        }
      });
    }
    for (const button of document.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => {
        saveText(button.closest(".code").querySelector("pre").textContent, button.dataset.save, "text/plain");
      });
    }
    return drawAll();
  };

  const button = document.getElementById("theme");
  const setTheme = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark));
  };
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  setTheme(preferred.matches);
  preferred.addEventListener("change", () => {
    setTheme(preferred.matches);
    drawAll();
  });
  button.addEventListener("click", () => {
    setTheme(!isDark());
    drawAll();
  });
  window.headstart = {
    // Puts what a newer page has in the place of what is here.
    renew: (text) => {
      const newer = new DOMParser().parseFromString(text, "text/html");
      data = JSON.parse(newer.getElementById("data").textContent);
      views.forEach((view) => view.finalize());
      views.clear();
      document.getElementById("main").replaceChildren(...newer.getElementById("main").childNodes);
      return begin();
    },
  };
  begin();
})();
