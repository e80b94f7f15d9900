// What is shown stands in the page's own address, after #, so that a link shows it again. It is sent to nobody.

const FIELDS = ["view", "text", "model", "layer", "rule", "punctuation", "tab", "first", "second", "at", "sentences"];

export function readAddress() {
  const fields = {};
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (FIELDS.includes(name)) fields[name] = value;
  }
  return fields;
}

export function addressOf(fields) {
  const known = Object.entries(fields).filter(([name, value]) => FIELDS.includes(name) && value);
  return `#${new URLSearchParams(known)}`;
}

// Shows other fields: as a step that the Back button undoes, or in the place of the present one.
export function goTo(fields, { replace = false } = {}) {
  const address = addressOf(fields);
  if (address === location.hash) dispatchEvent(new HashChangeEvent("hashchange"));
  else if (replace) history.replaceState(null, "", address);
  else location.hash = address;
}
