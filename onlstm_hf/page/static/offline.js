// Service worker that caches the files of the page for offline use. Online, each file is fetched again.

const open = async () => {
  const { files, version } = await (await fetch("site.json", { cache: "no-cache" })).json();
  return { cache: await caches.open(`page-${version}`), files, version };
};

addEventListener("install", (event) =>
  event.waitUntil(
    (async () => {
      const { cache, files } = await open();
      await cache.addAll(["./", "site.json", ...files]);
      skipWaiting();
    })(),
  ),
);

addEventListener("activate", (event) =>
  event.waitUntil(
    (async () => {
      const { version } = await open();
      for (const name of await caches.keys()) {
        if (name.startsWith("page-") && name !== `page-${version}`) await caches.delete(name);
      }
      await clients.claim();
    })(),
  ),
);

addEventListener("fetch", (event) => {
  const { origin } = new URL(event.request.url);
  if (event.request.method !== "GET" || origin !== location.origin) return;
  event.respondWith(
    fetch(event.request).catch(
      async () => (await caches.match(event.request, { ignoreSearch: true })) ?? Response.error(),
    ),
  );
});
