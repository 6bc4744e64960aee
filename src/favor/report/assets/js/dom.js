// Building elements. Whatever comes from a record enters the page as text, never as markup.

const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// The marker of a model's class, as an icon.
function marker(style, hollow = false) {
  return makeSvg(
    "svg",
    { class: `marker how-${style.key}${hollow ? " hollow" : ""}`, viewBox: "-1.3 -1.3 2.6 2.6", "aria-hidden": "true" },
    makeSvg("path", { d: style.path }),
  );
}

// A drop-down of [value, text] pairs; `disabled` values can be seen and not chosen.
function fillSelect(select, options, chosen, disabled = new Set()) {
  select.replaceChildren(
    ...options.map(([value, text]) =>
      make("option", { value, selected: String(value) === String(chosen), disabled: disabled.has(value) }, text),
    ),
  );
}
