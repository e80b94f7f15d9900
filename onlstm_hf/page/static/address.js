// The state of the page in the fragment of its URL, so that a link restores it. Fragments are not sent to servers.

const FIELDS = ["view", "text", "model", "layer", "rule", "punctuation", "tab", "first", "second", "at", "sentences"];

export function readAddress() {
  const fields = {};
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (FIELDS.includes(name)) fields[name] = value;
  }
  return fields;
}

export function addressOf(fields) {
  const entries = Object.entries(fields).filter(([name, value]) => FIELDS.includes(name) && value);
  return `#${new URLSearchParams(entries)}`;
}

// Shows other fields; `replace` replaces the current history entry instead of adding one.
export function goTo(fields, { replace = false } = {}) {
  const address = addressOf(fields);
  if (address === location.hash) dispatchEvent(new HashChangeEvent("hashchange"));
  else if (replace) history.replaceState(null, "", address);
  else location.hash = address;
}
