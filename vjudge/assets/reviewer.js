// What a review does in the page; see vjudge/review/widget.py. The image stands in the tool that it belongs to.
(image) => {
  // Keys typed in a tool are no shortcuts of JupyterLab, except with Ctrl or Cmd.
  const keepKeys = (tool) => {
    const mark = (event, on) => event.target.toggleAttribute("data-lm-suppress-shortcuts", on);
    const held = (event) => event.ctrlKey || event.metaKey;
    tool.addEventListener("focusin", (event) => mark(event, true));
    tool.addEventListener("keydown", (event) => { if (held(event)) mark(event, false); });
    tool.addEventListener("keyup", (event) => mark(event, !held(event)));
  };

  // A press, the note and the item that the page shows travel in one message. A slow link joins messages, so that
  // each holds all events that the kernel has not answered yet, by number.
  const review = (tool) => {
    const find = (selector) => tool.querySelector(selector);
    const session = Math.random().toString(36).slice(2);
    let queue = [], number = 0, edited = 0, saved = 0, item;

    const send = (action, pressed) => {
      const event = { number: ++number, action, pressed, item };
      if (edited > saved) Object.assign(event, { note: find(".vj-note-field textarea").value, edited });
      const field = find(".vj-score-field input");
      if (field) event.value = field.value;
      queue.push(event);
      const channel = find(".vj-channel input");
      channel.value = JSON.stringify({ session, queue });
      channel.dispatchEvent(new Event("input", { bubbles: true }));
      channel.dispatchEvent(new Event("change", { bubbles: true }));
    };
    const press = (button) => {
      const name = [...button.classList].find((name) => name.startsWith("vj-do-"));
      send(name.slice("vj-do-".length), button.getAttribute("aria-pressed") === "true");
    };

    const follow = () => {
      for (const button of tool.querySelectorAll("button.vj-vote"))
        button.setAttribute("aria-pressed", button.classList.contains("mod-primary"));
      const state = find(".vj-state"), field = find(".vj-note-field textarea");
      if (!state || !field) return;
      const drawn = state.dataset;
      // 1) what the kernel has answered
      if (drawn.session === session) {
        const answered = queue.filter((event) => event.number <= Number(drawn.done));
        queue = queue.filter((event) => event.number > Number(drawn.done));
        if (!("refused" in drawn)) for (const event of answered) saved = Math.max(saved, event.edited || 0);
      }
      // 2) what was typed while the next item was on its way belongs to the item before
      if (item !== undefined && item !== drawn.item) {
        if (edited > saved && !queue.some((event) => event.edited === edited)) send("note", false);
        saved = edited;
      }
      item = drawn.item;
      if (edited === saved && field.value !== drawn.note) field.value = drawn.note;
    };

    for (const kind of ["input", "change"])
      tool.addEventListener(kind, (event) => {
        if (!event.target.closest(".vj-note-field")) return;
        event.stopPropagation(); // the note travels with the next press
        edited += kind === "input";
      }, true);
    tool.addEventListener("focusout", (event) => {
      if (event.target.closest(".vj-note-field") && edited > saved) send("note", false);
    });
    tool.addEventListener("click", (event) => {
      const button = event.target.closest("[class*='vj-do-']");
      if (!button) return;
      event.stopImmediatePropagation();
      press(button);
    }, true);
    tool.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      if (event.target.closest("input, textarea, select, .widget-slider")) {
        if (event.key === "Escape") tool.focus();
        return;
      }
      const button = find(`.vj-key-${CSS.escape(event.key)}`);
      if (!button && event.key !== "n") return;
      event.preventDefault();
      event.stopPropagation();
      if (button) press(button);
      else find(".vj-note-field textarea").focus();
    }, true);
    tool.tabIndex = 0;
    tool.setAttribute("role", "group");
    tool.setAttribute("aria-label", "Review of judges' feedback");
    new MutationObserver(follow).observe(tool, {
      subtree: true, childList: true, attributes: true, attributeFilter: ["class"],
    });
    follow();
  };

  let tries = 0;
  const start = () => {
    const tool = image.closest(".vj-tool");
    if (!tool) {
      if (tries++ < 100) setTimeout(start, 100);
      return;
    }
    image.remove();
    keepKeys(tool);
    if (tool.classList.contains("vj-reviewer")) review(tool);
  };
  start();
}
