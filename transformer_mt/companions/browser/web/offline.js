// Keeps all files of this folder, so that the page works without a network after it was loaded once. A new
// export has another version: its files replace the old ones when all tabs with the page were closed, so that
// no page runs with files of both. While an export is uploaded, or where a host still has an old copy, a file
// has another checksum than this version's, and nothing is kept.
const OURS = `${self.registration.scope} `; // a host may have several such pages
const VERSION = "{version}", NAME = OURS + VERSION;
const FILES = JSON.parse('{files}'); // [name, checksum]
const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

async function keep() {
  const cache = await caches.open(NAME);
  try {
    await Promise.all(FILES.map(async ([name, checksum]) => {
      const response = await fetch(new Request(`${name}?v=${VERSION}`, { cache: "reload" }));
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (!response.ok || crc32(bytes) !== checksum) throw new Error(`${name} is of another version`);
      const type = response.headers.get("content-type");
      await cache.put(name, new Response(bytes, type ? { headers: { "content-type": type } } : {}));
    }));
  } catch (error) {
    await caches.delete(NAME);
    throw error;
  }
}

self.addEventListener("install", (event) => event.waitUntil(keep()));

self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith(OURS) && name !== NAME;
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name)))));
});

self.addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  const asked = new URL(url).searchParams.get("v");
  if (method !== "GET" || !url.startsWith(self.registration.scope) || (asked && asked !== VERSION)) return;
  const kept = caches.open(NAME).then((cache) => cache.match(event.request, { ignoreSearch: true }));
  event.respondWith(kept.then((response) => response ?? fetch(event.request)));
});
